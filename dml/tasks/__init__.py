"""The task executor, which runs inside Spark's tasks, from packed input to a sink. Worker-safe."""
