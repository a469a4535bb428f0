"""What bounds and counts say of rows that were not read: for scans, which may skip them, and commits, which conflict.

Driver and workers. `file_bounds` makes bounds of manifests, partitions and column metrics; `row_tests` asks an Iceberg
expression of them; `bound_expressions` is how expressions are walked.
"""
