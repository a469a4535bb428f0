"""Streaming writes to tables and streaming reads from them. Driver.

The sink: `columns` matches the stream's columns with the table's; `sink` writes each micro-batch to a table once.

The source: `source_options` of a stream's reader; `offsets`, how far it has read; `files` of a snapshot by position;
`source` selects the files of a micro-batch.

The adapters: Spark's own sink and source in `dml.connector`, functions of `foreachBatch` in `sink` on classic Spark and
in `dml.spark_connect.server_side` on Spark Connect.
"""
