"""Splicing of Parquet files: chunks of columns copied as they are, beside new ones, under a new footer. Worker-safe.

Bytes in, bytes out: nothing here knows tables, schemas of tables or storages.
"""
