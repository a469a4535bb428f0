"""RowDelta as a server: Spark Connect and Thrift (JDBC) for clients without RowDelta installed. Driver.

Input: the catalog, and the address to listen on. Output: a process that serves until a signal stops it.

The server is a classic driver with RowDelta's parser and Spark's own servers in the same JVM. They create a session per
client, which derives from RowDelta's session and gets its catalogs (`dml.spark.handlers`). The protocols are Spark's
own, so every Spark client works.
"""

import ipaddress
import os
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

from pyspark.sql import SparkSession

from dml import limits
from dml.active_session import DEFAULT_CATALOG
from dml.connector.install import register_format
from dml.errors import SetupError
from dml.session import Session
from dml.shell import open_session
from dml.spark.bridge.gateway import JavaObject, Py4JError, Py4JJavaError, jvm_view
from dml.spark.bridge.internals import SparkClass
from dml.spark.bridge.names import CONNECT_SERVICE, THRIFT_SERVER, TOKEN_CHECK
from dml.spark.bridge.sessions import classic_session
from dml.spark.extension import is_remote
from dml.spark.launch import active_session

__all__ = ["DEFAULT_HOST", "DEFAULT_PORT", "Listen", "Server", "run", "serving"]

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 15002

TOKEN_SETTING: Final = "spark.connect.authenticate.token"  # noqa: S105  a name

LISTENING: Final = {
    "spark.connect.grpc.binding.address": "--host",
    "spark.connect.grpc.binding.port": "--port",
    TOKEN_SETTING: "--token",
    "hive.server2.thrift.bind.host": "--host",
    "hive.server2.thrift.port": "--thrift",
}
"""Suffixes of Spark settings that only `Listen` may set, with the options to use instead."""

THRIFT_VARIABLES: Final = {
    "HIVE_SERVER2_THRIFT_BIND_HOST": "--host",
    "HIVE_SERVER2_THRIFT_PORT": "--thrift",
    "HIVE_SERVER2_THRIFT_HTTP_PORT": "--thrift",
}
"""Environment variables that override the settings of the Thrift server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """The address and access control of a server.

    Attributes:
        host: The address to listen on.
        port: The port of Spark Connect; 0 selects a free one.
        thrift_port: The port of the Thrift server; None starts none.
        token: The token that clients of Spark Connect must send.
        insecure: Allow unauthenticated remote clients.
    """

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    thrift_port: int | None = None
    token: str | None = None
    insecure: bool = False

    def check(self) -> None:
        """Refuse unauthenticated remote access by mistake: every client runs code as the user of this process.

        Raises:
            SetupError: The address is reachable remotely without a token, or the token is empty.
        """
        if self.token is not None and not self.token.strip():
            raise SetupError("The token is empty", hint="Set SPARK_CONNECT_AUTHENTICATE_TOKEN to a secret, or unset it")
        if self.insecure or is_loopback(self.host):
            return
        if self.token is None:
            raise SetupError(
                f"Anyone who can connect to {self.host} could read and change all tables, and run code here",
                hint="Set SPARK_CONNECT_AUTHENTICATE_TOKEN to a secret that clients must send, or use --insecure",
            )
        if self.thrift_port is not None:
            raise SetupError(
                f"The Thrift server does not check tokens, and {self.host} can be reached remotely",
                hint="Listen on this machine only, behind a proxy that authenticates clients, or use --insecure",
            )

    def settings(self, scratch: Path) -> dict[str, str]:
        """Return Spark's settings.

        Args:
            scratch: A folder for temporary files of Spark's Thrift server.
        """
        settings = {
            "spark.app.name": "rowdelta serve",
            "spark.connect.grpc.binding.address": self.host,
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.connect.grpc.port.maxRetries": "0",  # fail if the port is taken, instead of trying the next one
        }
        if self.thrift_port is not None:
            folders = {name: scratch / name for name in ("hive", "local", "resources", "log")}
            for folder in folders.values():
                folder.mkdir()
            settings |= {
                "spark.hadoop.hive.server2.thrift.bind.host": self.host,
                "spark.hadoop.hive.server2.thrift.port": str(self.thrift_port),
                "spark.hadoop.hive.server2.logging.operation.enabled": "false",
                "spark.hadoop.hive.exec.scratchdir": str(folders["hive"]),
                "spark.hadoop.hive.exec.local.scratchdir": str(folders["local"]),
                "spark.hadoop.hive.downloaded.resources.dir": str(folders["resources"]),
                "spark.hadoop.hive.querylog.location": str(folders["log"]),
            }
        return settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server.

    Attributes:
        session: The session whose catalogs its clients use.
        listen: The address and access control.
        port: The port of Spark Connect.
        thrift: Spark's Thrift server, if there is one.
    """

    session: Session
    listen: Listen
    port: int
    thrift: JavaObject | None

    @property
    def url(self) -> str:
        """The URL for `SparkSession.builder.remote`."""
        return f"sc://{url_host(self.listen.host)}:{self.port}"

    @property
    def jdbc_url(self) -> str | None:
        """The URL for JDBC clients; None without a Thrift server."""
        if self.thrift is None:
            return None
        return f"jdbc:hive2://{url_host(self.listen.host)}:{self.listen.thrift_port}"

    def is_running(self) -> bool:
        """Return True while Spark and its servers run."""
        try:
            connect_server = CONNECT_SERVICE.call_object("server")
            return not (
                classic_session(self.session.spark).sparkContext().isStopped()
                or connect_server.isShutdown()
                or (self.thrift is not None and str(self.thrift.getServiceState()) != "STARTED")
            )
        except (Py4JError, OSError):
            return False

    def stop(self) -> None:
        """Stop accepting statements, wait a limited time for running ones, then stop the servers."""
        jvm = jvm_view()
        unit = jvm.java.util.concurrent.TimeUnit.SECONDS
        with suppress(Py4JError, OSError):  # Spark has already ended
            service = server_class(CONNECT_SERVICE)
            service.stop(jvm.scala.Option.apply(limits.SERVER_DRAIN_SECONDS), jvm.scala.Option.apply(unit))
            if self.thrift is not None:
                self.thrift.stop()


@contextmanager
def serving(
    listen: Listen,
    *,
    warehouse: str | None = None,
    catalog: str | None = None,
    settings: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Serve while the block runs.

    Args:
        listen: The address and access control.
        warehouse: The folder of the embedded catalog, as for `dml.connect`.
        catalog: The name of another catalog.
        settings: Spark settings of the driver.
        properties: The properties of the catalog.

    Yields:
        The server, which accepts clients.

    Raises:
        SetupError: Remote access is not protected, Spark or the catalog does not start, or the port is taken.
    """
    listen.check()
    check_settings(settings or {})
    check_environment(listen, os.environ)
    if is_remote(dict(settings or {})) or active_session() is not None:
        raise SetupError(
            "A server starts its own driver, but there is a Spark session already",
            hint="Start it in a separate process, without SPARK_REMOTE",
        )
    with tempfile.TemporaryDirectory(prefix="rowdelta-serve-") as scratch:
        # Names without a catalog must resolve alike for all clients: by default, JDBC clients would create `db.t` in
        # Spark's own catalog.
        default = {"spark.sql.defaultCatalog": catalog or DEFAULT_CATALOG}
        chosen = {**default, **listen.settings(Path(scratch)), **(settings or {})}
        session = open_session(warehouse, catalog, properties or {}, progress=False, settings=chosen, may_create=True)
        try:
            register_format(session.spark)  # always, because the server cannot see which clients use it
            thrift = None if listen.thrift_port is None else start_thrift(session.spark, listen)
            server = Server(session=session, listen=listen, port=start_connect(session.spark, listen), thrift=thrift)
            try:
                yield server
            finally:
                server.stop()
        finally:
            with suppress(Py4JError, OSError):
                session.close()
                session.spark.stop()


def run(
    listen: Listen,
    output: TextIO,
    *,
    warehouse: str | None = None,
    catalog: str | None = None,
    settings: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
) -> int:
    """Serve until SIGINT or SIGTERM.

    Args:
        listen: The address and access control.
        output: The stream for connection instructions.
        warehouse: As for `serving`.
        catalog: As for `serving`.
        settings: As for `serving`.
        properties: As for `serving`.

    Returns:
        The exit code: 0 after a signal, 1 if Spark ended by itself.
    """
    stopped = threading.Event()
    with serving(listen, warehouse=warehouse, catalog=catalog, settings=settings, properties=properties) as server:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopped.set())
        for line in connection_lines(server):
            print(line, file=output, flush=True)
        while not stopped.wait(limits.SERVER_POLL_SECONDS):
            if not server.is_running():
                print("Spark has ended, and the server with it", file=output, flush=True)
                return 1
        seconds = limits.SERVER_DRAIN_SECONDS
        print(f"Stopping: no new statements; running ones have {seconds} seconds", file=output, flush=True)
    return 0


def connection_lines(server: Server) -> Iterator[str]:
    """Yield the connection instructions, one line per protocol."""
    catalogs = ", ".join(server.session.registry.catalogs)
    yield f"RowDelta serves the catalog {catalogs}. End it with Ctrl-C."
    token = "" if server.listen.token is None else " with the token in SPARK_CONNECT_AUTHENTICATE_TOKEN"
    yield f'Spark Connect: SparkSession.builder.remote("{server.url}").getOrCreate(){token}'
    if server.jdbc_url is not None:
        yield f'JDBC and Thrift: beeline -u "{server.jdbc_url}"'


def start_connect(spark: SparkSession, listen: Listen) -> int:
    """Start Spark's Connect server in the driver, and return its port.

    Raises:
        SetupError: It cannot listen on the address, or Spark has no such server.
    """
    service = server_class(CONNECT_SERVICE)
    if listen.token is not None:
        server_class(TOKEN_CHECK)  # a Spark without this class would ignore the token
        # Set only after Spark has started: PySpark would pass it in a command line, which all users can read.
        classic_session(spark).sparkContext().conf().set(TOKEN_SETTING, listen.token)
    try:
        service.start(classic_session(spark).sparkContext())
    except Py4JJavaError as error:
        raise cannot_listen(listen.host, listen.port, error) from error
    return int(CONNECT_SERVICE.call_object("server").getPort())


def start_thrift(spark: SparkSession, listen: Listen) -> JavaObject:
    """Start Spark's Thrift server in the driver.

    Raises:
        SetupError: It cannot listen on the address, or Spark has no such server.
    """
    thrift = server_class(THRIFT_SERVER)
    try:
        return thrift.startWithSparkSession(classic_session(spark), False)
    except Py4JJavaError as error:
        raise cannot_listen(listen.host, listen.thrift_port, error) from error


def check_environment(listen: Listen, environment: Mapping[str, str]) -> None:
    """Refuse environment variables that override the Thrift server's address, which `Listen` checks.

    Raises:
        SetupError: Such a variable is set.
    """
    for name, option in THRIFT_VARIABLES.items() if listen.thrift_port is not None else ():
        if name in environment:
            raise SetupError(
                f"The environment variable {name} would decide where the server listens",
                hint=f"Unset it, and use {option}",
            )


def check_settings(settings: Mapping[str, str]) -> None:
    """Refuse Spark settings of the address or token, which `Listen` checks.

    Raises:
        SetupError: There is such a setting.
    """
    for key in settings:
        option = next((option for end, option in LISTENING.items() if key.endswith(end)), None)
        if option is not None:
            raise SetupError(f"{key} cannot be given to a server as a setting", hint=f"Use {option}")


def server_class(kind: SparkClass) -> Any:
    """Return a class of the JVM.

    Raises:
        SetupError: The class does not exist.
    """
    jvm = jvm_view()
    try:
        jvm.java.lang.Class.forName(kind.name, True, jvm.java.lang.Thread.currentThread().getContextClassLoader())
    except Py4JJavaError as error:
        raise SetupError(
            f"This Spark has no such server: its class {kind.name} is missing",
            hint="Install PySpark 4.0 or later from PyPI: its package has Spark's servers",
        ) from error
    return kind.resolve()


def cannot_listen(host: str, port: int | None, error: Py4JJavaError) -> SetupError:
    """Build the error of a server that does not start."""
    causes = []
    cause = error.java_exception
    while cause is not None:
        causes.append(str(cause.getMessage()))
        cause = cause.getCause()
    return SetupError(
        f"The server cannot listen on {host}:{port}: {causes[-1]}",
        hint="Choose another port; 0 selects a free one",
    )


def is_loopback(host: str) -> bool:
    """Return True if an address is only reachable from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def url_host(host: str) -> str:
    """Format an address for a URL.

    Loopback addresses become `localhost`: PySpark's client sends a token without TLS only to that name.
    """
    if is_loopback(host) or host in {"0.0.0.0", "::"}:  # noqa: S104  compared, not bound
        return "localhost"
    return f"[{host}]" if ":" in host else host
