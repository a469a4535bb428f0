"""Splice Parquet files: copy column chunks unchanged, beside new ones, under a new footer. Worker-safe.

Bytes in, bytes out: this package does not depend on tables, their schemas or storages.
"""
