"""All access to py4j, to Spark's private classes and to PySpark's private attributes. Driver."""
