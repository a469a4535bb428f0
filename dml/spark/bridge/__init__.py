"""What RowDelta takes from py4j, from Spark's private classes and from PySpark's private fields. Driver."""
