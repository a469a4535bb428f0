"""Frozen dataclasses that stages, the driver and workers exchange. Worker-safe."""
