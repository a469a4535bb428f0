"""Row programs: expressions, clauses, key lookups and groups, evaluated on Arrow arrays. Free of files and Spark."""
