"""A free port for the Connect server that PySpark starts in a process, so that several programs can run at once."""

import socket

from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.session import SparkSession

__all__ = ["PORT_SETTING", "another_session", "free_port"]

PORT_SETTING = "spark.connect.grpc.binding.port"


def free_port() -> str:
    """A port that nobody listens on, which clients of this process take where no other is named."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = int(one.getsockname()[1])
    setattr(DefaultChannelBuilder, "default_port", staticmethod(lambda: port))  # noqa: B010 - it is a method
    return str(port)


def another_session() -> SparkSession:
    """One more session of the server; `newSession` is not there before PySpark 4.3."""
    return SparkSession.builder.remote(f"sc://localhost:{DefaultChannelBuilder.default_port()}").create()
