"""Iceberg's metadata tables: their names, schemas and rows. Driver and workers.

tables            the tables and their schemas
snapshot_rows     rows from the table metadata: snapshots, history, refs, metadata_log_entries
manifest_rows     rows from manifest lists: manifests, all_manifests
entry_scan        rows from manifests: entries, files and the tables derived from them
readable_metrics  the metrics of files as typed columns
frames            metadata tables as DataFrames
"""

from typing import TYPE_CHECKING

from dml.lazy_imports import lazy_modules

if TYPE_CHECKING:
    from dml.metadata_tables import frames, tables

__all__ = ["frames", "tables"]

__getattr__ = lazy_modules(__name__, __all__)
