"""Iceberg's metadata tables: which there are, their schemas, and their rows. Driver and workers.

tables            the tables and their schemas
snapshot_rows     rows that the table's metadata holds: snapshots, history, refs, metadata_log_entries
manifest_rows     rows that manifest lists hold: manifests, all_manifests
entry_scan        rows that manifests hold: entries, files and their like, and what `partitions` sums up
readable_metrics  the metrics of files as columns of their own
frames            all of them as DataFrames
"""
