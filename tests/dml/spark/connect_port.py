"""A free port for the Connect server that PySpark starts in a process, so that several programs can run at once."""

import socket

from pyspark.sql.connect.client import DefaultChannelBuilder

__all__ = ["PORT_SETTING", "free_port"]

PORT_SETTING = "spark.connect.grpc.binding.port"


def free_port() -> str:
    """A port that nobody listens on, which clients of this process take where no other is named."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = int(one.getsockname()[1])
    DefaultChannelBuilder.default_port = staticmethod(lambda: port)
    return str(port)
