"""Manifest lists and manifests: their Avro bytes, read and written. Driver."""
