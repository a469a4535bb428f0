"""Row programs: expressions, clauses, key lookups and groups, evaluated on Arrow arrays. No file, no table, no Spark."""
