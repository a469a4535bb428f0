"""RowDelta tables on Spark Connect, with a server that does not know RowDelta's catalogs. Driver.

In the client: `calls` intercepts PySpark's calls on RowDelta tables; `reads`, `writes` and `catalog` run them, with the
modules that also run RowDelta's statements; `errors` raises Spark's exceptions for missing and existing objects.
`columns` and `plans` read and build the trees of PySpark's client.

Beside the server: `server_side` writes the micro-batches of a stream.

On classic Spark `dml.connector` does the same for Spark's own planner. Streams into tables on classic Spark before 4.0,
which has no such planner, are written as on Connect.
"""
