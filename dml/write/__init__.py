"""Writers of data files, position delete files and deletion vectors. Worker-safe."""
