"""The bytes of a table's files: where they may lie, and Avro's container. Worker-safe."""
