"""Statements and table state to row-delta plans: one module per statement, no Spark job, nothing written. Driver."""
