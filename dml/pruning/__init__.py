"""Prune manifests, files and row groups by bounds and counts: for scans, and for conflict detection in commits.

Driver and workers. `file_bounds` reads bounds from manifests, partitions and column metrics, `row_tests` evaluates an
Iceberg expression on them, and `bound_expressions` binds and folds expressions.
"""
