"""From a snapshot to rows: pruning, scan tasks, reading them as Arrow, and as a Spark DataFrame."""
