"""Scans of a snapshot: pruning, scan tasks, and their rows as Arrow batches or as a Spark DataFrame."""
