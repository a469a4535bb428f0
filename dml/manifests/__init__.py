"""Read and write manifest lists and manifests as Avro files. Driver."""
