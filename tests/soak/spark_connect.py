"""A Spark Connect server for tests: many client processes, one JVM. Statements are planned and committed by clients."""

import contextlib
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark

from dml.spark.launch import LOG_SETTINGS
from tests.class_archive import JVM_OPTIONS
from tests.conftest import part_settings
from tests.services.server import HOST, free_ports, serving

__all__ = ["spark_connect"]

CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
JAVA_OPTIONS = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()} {JVM_OPTIONS}"


@contextlib.contextmanager
def spark_connect(folder: Path) -> Iterator[str]:
    """A server while the block runs.

    Args:
        folder: For its log and what Spark spills.

    Yields:
        Its URL.
    """
    (port,) = free_ports(1)
    settings = {
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.local.dir": str(folder / "local"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        **part_settings(),
    }
    options = [text for key, value in settings.items() for text in ("--conf", f"{key}={value}")]
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [str(submit), "--master", "local[2]", "--driver-memory", "1500m", "--class", CLASS, *options]

    def ready() -> None:
        socket.create_connection((HOST, port), timeout=1).close()

    workers = f"PYSPARK_PYTHON={sys.executable}"
    with serving(["/usr/bin/env", workers, *command], ready, folder / "spark-connect.log"):
        yield f"sc://{HOST}:{port}"
