"""Scans of tables as Spark plans them (DataSource V2), for queries and for catalogs. Driver, classic Spark only."""
