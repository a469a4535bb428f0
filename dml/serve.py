"""RowDelta as a server: Spark Connect and Thrift (JDBC) for clients that have no RowDelta. Driver.

Input: where the tables are, and where to listen. Output: a process that serves until it is told to end.

It is a classic driver with our parser, and with Spark's own servers in the same JVM: they make a session for each
client, and a session that is made of ours has our catalogs (`dml.spark.handlers`). Nothing of Spark's protocols is
ours, so that every client of Spark's is one of this server.
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

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from dml import limits
from dml.active_session import DEFAULT_CATALOG
from dml.connector import register_format
from dml.errors import SetupError
from dml.session import Session
from dml.shell import open_session
from dml.spark.extension import is_remote
from dml.spark.jvm import classic_session, jvm_view
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
"""What `Listen` judges, by the end of the names of Spark's settings: nobody sets them past it."""

THRIFT_VARIABLES: Final = {
    "HIVE_SERVER2_THRIFT_BIND_HOST": "--host",
    "HIVE_SERVER2_THRIFT_PORT": "--thrift",
    "HIVE_SERVER2_THRIFT_HTTP_PORT": "--thrift",
}
"""Environment variables that the Thrift server takes before its settings."""

TOKEN_CHECK: Final = "org.apache.spark.sql.connect.service.PreSharedKeyAuthenticationInterceptor"  # noqa: S105  a class
CONNECT_SERVICE: Final = "org.apache.spark.sql.connect.service.SparkConnectService"
THRIFT_SERVER: Final = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Where a server listens, and who may come.

    Attributes:
        host: The address.
        port: The port of Spark Connect; 0 takes a free one.
        thrift_port: The port of the Thrift server; without it there is none.
        token: What clients of Spark Connect have to show.
        insecure: Whether others than this machine may come without showing anything.
    """

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    thrift_port: int | None = None
    token: str | None = None
    insecure: bool = False

    def check(self) -> None:
        """Refuse to listen for everybody by mistake: whoever comes in runs code as the user of this process.

        Raises:
            SetupError: there is no token where others can come, or it is none.
        """
        if self.token is not None and not self.token.strip():
            raise SetupError("The token is empty", hint="Set SPARK_CONNECT_AUTHENTICATE_TOKEN to a secret, or unset it")
        if self.insecure or is_loopback(self.host):
            return
        if self.token is None:
            raise SetupError(
                f"Whoever reaches {self.host} could read and change all tables, and run code here",
                hint="Set SPARK_CONNECT_AUTHENTICATE_TOKEN to a secret that clients have to show, or say --insecure",
            )
        if self.thrift_port is not None:
            raise SetupError(
                f"The Thrift server asks nobody for a token, and {self.host} can be reached by others",
                hint="Let it listen on this machine alone, behind a proxy that asks, or say --insecure",
            )

    def settings(self, scratch: Path) -> dict[str, str]:
        """Spark's settings.

        Args:
            scratch: A folder for what Spark's Thrift server keeps while it runs.
        """
        settings = {
            "spark.app.name": "rowdelta serve",
            "spark.connect.grpc.binding.address": self.host,
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.connect.grpc.port.maxRetries": "0",  # a port that is taken is an error, not another port
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
    """A server that serves.

    Attributes:
        session: The session whose catalogs its clients have.
        listen: Where it listens.
        port: The port of Spark Connect.
        thrift: Spark's Thrift server, if there is one.
    """

    session: Session
    listen: Listen
    port: int
    thrift: JavaObject | None

    @property
    def url(self) -> str:
        """What a client of Spark Connect gives to `SparkSession.builder.remote`."""
        return f"sc://{url_host(self.listen.host)}:{self.port}"

    @property
    def jdbc_url(self) -> str | None:
        """What a JDBC client connects to."""
        if self.thrift is None:
            return None
        return f"jdbc:hive2://{url_host(self.listen.host)}:{self.listen.thrift_port}"

    def serves(self) -> bool:
        """Whether clients can be served: it ends where Spark does, or one of its servers."""
        try:
            connect_server = java_class(CONNECT_SERVICE + "$").__getattr__("MODULE$").server()
            return not (
                classic_session(self.session.spark).sparkContext().isStopped()
                or connect_server.isShutdown()
                or (self.thrift is not None and str(self.thrift.getServiceState()) != "STARTED")
            )
        except (Py4JError, OSError):
            return False

    def stop(self) -> None:
        """Take no more statements, let those that run end for a while, and end."""
        jvm = jvm_view()
        unit = jvm.java.util.concurrent.TimeUnit.SECONDS
        with suppress(Py4JError, OSError):  # Spark has ended, and its servers with it
            service = java_class(CONNECT_SERVICE)
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
        listen: Where.
        warehouse: Folder of the embedded catalog, as `dml.connect` takes it.
        catalog: Name of another catalog.
        settings: Spark settings of the driver.
        properties: Properties of the catalog.

    Yields:
        The server: its port is open, and whoever comes is served.

    Raises:
        SetupError: others could come in, Spark or the catalog does not start, or somebody listens there already.
    """
    listen.check()
    check_settings(settings or {})
    check_environment(listen, os.environ)
    if is_remote(dict(settings or {})) or active_session() is not None:
        raise SetupError(
            "A server starts a driver of its own, and there is a Spark session already",
            hint="Start it in a process of its own, without SPARK_REMOTE",
        )
    with tempfile.TemporaryDirectory(prefix="rowdelta-serve-") as scratch:
        # Names without a catalog mean the same to all clients. By default JDBC clients would create `db.t` in Spark's
        # own catalog.
        default = {"spark.sql.defaultCatalog": catalog or DEFAULT_CATALOG}
        chosen = {**default, **listen.settings(Path(scratch)), **(settings or {})}
        session = open_session(warehouse, catalog, properties or {}, progress=False, settings=chosen)
        try:
            register_format(session.spark)  # whose clients name it, the server does not see
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
    """Serve until the process is told to end.

    Args:
        listen: Where.
        output: Where it is said how to connect.
        warehouse: As for `serving`.
        catalog: As for `serving`.
        settings: As for `serving`.
        properties: As for `serving`.

    Returns:
        The exit code: 0 if it was told to end, 1 if Spark ended by itself.
    """
    told = threading.Event()
    with serving(listen, warehouse=warehouse, catalog=catalog, settings=settings, properties=properties) as server:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: told.set())
        for line in ways_in(server):
            print(line, file=output, flush=True)
        while not told.wait(limits.SERVER_POLL_SECONDS):
            if not server.serves():
                print("Spark has ended, and the server with it", file=output, flush=True)
                return 1
        print("Ending: no new statements, and those that run have a while", file=output, flush=True)
    return 0


def ways_in(server: Server) -> Iterator[str]:
    """How to connect, a line for each way."""
    catalogs = ", ".join(server.session.registry.catalogs)
    yield f"RowDelta serves the catalog {catalogs}. End it with Ctrl-C."
    token = "" if server.listen.token is None else " with the token in SPARK_CONNECT_AUTHENTICATE_TOKEN"
    yield f'Spark Connect: SparkSession.builder.remote("{server.url}").getOrCreate(){token}'
    if server.jdbc_url is not None:
        yield f'JDBC and Thrift: beeline -u "{server.jdbc_url}"'


def start_connect(spark: SparkSession, listen: Listen) -> int:
    """Start Spark's Connect server in the driver.

    Returns:
        Its port.

    Raises:
        SetupError: it cannot listen there, or Spark has none.
    """
    service = java_class(CONNECT_SERVICE)
    if listen.token is not None:
        java_class(TOKEN_CHECK)  # a Spark without it would ask nobody for the token
        # Not before Spark has started: what PySpark starts it with stands in a command line, which everybody can read.
        classic_session(spark).sparkContext().conf().set(TOKEN_SETTING, listen.token)
    try:
        service.start(classic_session(spark).sparkContext())
    except Py4JJavaError as error:
        raise cannot_listen(listen.host, listen.port, error) from error
    return int(java_class(CONNECT_SERVICE + "$").__getattr__("MODULE$").server().getPort())


def start_thrift(spark: SparkSession, listen: Listen) -> JavaObject:
    """Start Spark's Thrift server in the driver.

    Raises:
        SetupError: it cannot listen there, or Spark has none.
    """
    thrift = java_class(THRIFT_SERVER)
    try:
        return thrift.startWithSparkSession(classic_session(spark), False)
    except Py4JJavaError as error:
        raise cannot_listen(listen.host, listen.thrift_port, error) from error


def check_environment(listen: Listen, environment: Mapping[str, str]) -> None:
    """Refuse what the Thrift server would take from the environment: the guard of `Listen` would not see it.

    Raises:
        SetupError: there is such a variable.
    """
    for name, option in THRIFT_VARIABLES.items() if listen.thrift_port is not None else ():
        if name in environment:
            raise SetupError(
                f"The environment variable {name} would decide where the server listens",
                hint=f"Unset it, and say {option}",
            )


def check_settings(settings: Mapping[str, str]) -> None:
    """Refuse Spark's settings of where to listen: the guard of `Listen` would not see them.

    Raises:
        SetupError: there is one.
    """
    for key in settings:
        option = next((option for end, option in LISTENING.items() if key.endswith(end)), None)
        if option is not None:
            raise SetupError(f"{key} cannot be given to a server as a setting", hint=f"Say {option}")


def java_class(name: str) -> Any:
    """A class of the JVM.

    Raises:
        SetupError: it is not there.
    """
    jvm = jvm_view()
    try:
        jvm.java.lang.Class.forName(name, True, jvm.java.lang.Thread.currentThread().getContextClassLoader())
    except Py4JJavaError as error:
        raise SetupError(
            f"This Spark has no server that can do this: its class {name} is not there",
            hint="Install PySpark 4.0 or later from PyPI: its package has Spark's servers",
        ) from error
    return getattr(jvm, name)


def cannot_listen(host: str, port: int | None, error: Py4JJavaError) -> SetupError:
    """The error of a server that does not start."""
    causes = []
    cause = error.java_exception
    while cause is not None:
        causes.append(str(cause.getMessage()))
        cause = cause.getCause()
    return SetupError(
        f"The server cannot listen on {host}:{port}: {causes[-1]}",
        hint="Choose another port; 0 takes a free one",
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def url_host(host: str) -> str:
    """An address as it stands in a URL.

    That of this machine is `localhost`: to no other address PySpark's client shows a token without TLS.
    """
    if is_loopback(host) or host in {"0.0.0.0", "::"}:  # noqa: S104  compared, not bound
        return "localhost"
    return f"[{host}]" if ":" in host else host
