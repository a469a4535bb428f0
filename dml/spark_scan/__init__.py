"""Table scans that Spark plans (DataSource V2), for queries and for catalogs. Driver, classic Spark only."""
