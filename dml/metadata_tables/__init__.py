"""Iceberg's metadata tables: their names, schemas and rows. Driver and workers.

tables            the tables and their schemas
snapshot_rows     rows from the table metadata: snapshots, history, refs, metadata_log_entries
manifest_rows     rows from manifest lists: manifests, all_manifests
entry_scan        rows from manifests: entries, files and the tables derived from them
readable_metrics  the metrics of files as typed columns
frames            metadata tables as DataFrames
"""
