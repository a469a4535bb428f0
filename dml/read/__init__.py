"""Reading data files and delete files as Arrow, by scan tasks. Worker-safe."""
