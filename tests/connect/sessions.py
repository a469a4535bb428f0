"""Spark Connect sessions, each process with its own server on a free port."""

import os
import socket
import sys
import tempfile
from collections.abc import Mapping
from types import MappingProxyType

import pyspark.sql
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.session import SparkSession

__all__ = ["another_session", "connect_session"]

PORT_SETTING = "spark.connect.grpc.binding.port"


def reserve_default_port() -> str:
    """Pick a free port and make it the default of this process's Spark Connect clients."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = int(one.getsockname()[1])
    setattr(DefaultChannelBuilder, "default_port", staticmethod(lambda: port))  # noqa: B010 - it is a method
    return str(port)


def connect_session(settings: Mapping[str, str] = MappingProxyType({})) -> pyspark.sql.SparkSession:
    """Start a server in this process and return a session on it.

    Args:
        settings: Settings in addition to those that all programs use.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = pyspark.sql.SparkSession.builder.remote("local[2]")
    common = {
        PORT_SETTING: reserve_default_port(),
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": tempfile.mkdtemp(),
    }
    for key, value in {**common, **settings}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def another_session() -> SparkSession:
    """Open another session on the server. `newSession` requires PySpark 4.3."""
    return SparkSession.builder.remote(f"sc://localhost:{DefaultChannelBuilder.default_port()}").create()
