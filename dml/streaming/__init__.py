"""Streams: what a table takes from a streaming query, and what it gives to one. Driver; nothing here knows the JVM.

The sink: `options` of a stream's writer; `columns` of its rows, found in the table; `sink`, one micro-batch into a
table; `server_side`, a micro-batch in the process beside a Spark Connect server.

The source: `source_options` of a stream's reader; `offsets`, how far it has read; `files` of a snapshot by their
places; `source`, which of them a micro-batch has.

Spark's interfaces are in `dml.connector`, PySpark's calls on Spark Connect in `dml.remote`.
"""
