"""The files of a table: where they may lie, and how they are opened. Worker-safe."""
