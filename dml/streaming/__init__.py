"""Streams: what a table takes from a streaming query, and what it gives to one. Driver; nothing here knows the JVM.

The sink: `options` of a stream's writer; `columns` of its rows, found in the table; `sink`, one micro-batch into a
table. Spark's interfaces are in `dml.connector`, PySpark's calls on Spark Connect in `dml.remote`.
"""
