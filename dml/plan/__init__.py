"""Plan statements from table state, one module per statement. No Spark job runs, nothing is written. Driver."""
