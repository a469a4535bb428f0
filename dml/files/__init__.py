"""The files of a table: allowed locations, access and metadata files. Worker-safe."""
