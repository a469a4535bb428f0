"""Streaming writes to tables and streaming reads from them. Driver; this package does not use the JVM.

The sink: `options` of a stream's writer; `columns` matches the stream's columns with the table's; `sink` writes one
micro-batch to a table; `server_side` handles a micro-batch in the process beside a Spark Connect server.

The source: `source_options` of a stream's reader; `offsets`, how far it has read; `files` of a snapshot by position;
`source` selects the files of a micro-batch.

Spark's interfaces are in `dml.connector`, PySpark's calls on Spark Connect in `dml.remote`.
"""
