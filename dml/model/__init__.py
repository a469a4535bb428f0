"""The contracts between stages: frozen dataclasses that the driver and workers exchange. Worker-safe."""
