"""A PostgreSQL server for tests: its own cluster in a temporary folder, password asked for over TCP."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg2

from tests.services.server import HOST, free_ports, serving

__all__ = ["PostgreSql", "postgresql"]

USER = "lake"
PASSWORD = "p@ss/w0rd-of-the-catalog"  # with characters that a URI has to quote
INITDB_SECONDS = 60
DEBIAN_FOLDERS = "/usr/lib/postgresql/*/bin"
# Nothing here has to survive a crash of the machine.
SETTINGS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "40"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgreSql:
    """A running server."""

    port: int
    folder: Path

    def uri(self, database: str, password: str = PASSWORD) -> str:
        """The URI of a database for SQLAlchemy."""
        return f"postgresql+psycopg2://{USER}:{quote(password, safe='')}@{HOST}:{self.port}/{database}"

    def query(self, text: str, database: str = "postgres") -> list[tuple]:
        """Rows of a statement, over a connection of its own."""
        connection = psycopg2.connect(
            host=HOST, port=self.port, user=USER, password=PASSWORD, dbname=database, connect_timeout=2
        )
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(text)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def create_database(self, name: str) -> str:
        """An empty database's URI."""
        self.query(f'CREATE DATABASE "{name}"')
        return self.uri(name)

    def connections(self, database: str) -> int:
        """How many clients are connected to a database."""
        return int(self.query(f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}'")[0][0])


@contextlib.contextmanager
def postgresql() -> Iterator[PostgreSql]:
    """A server while the block runs; Debian's package `postgresql` has to be there.

    PostgreSQL does not run as root: then it runs as the user that its package made.
    """
    user = "postgres" if os.geteuid() == 0 else ""
    # Not below pytest's folder, which only its owner may enter.
    folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
    try:
        if user:
            record = pwd.getpwnam(user)
            os.chown(folder, record.pw_uid, record.pw_gid)
        data, (port,) = folder / "data", free_ports(1)
        initialise(data, user)
        options = [text for key, value in SETTINGS.items() for text in ("-c", f"{key}={value}")]
        place = ["-D", str(data), "-h", HOST, "-p", str(port), "-k", str(folder)]
        server = PostgreSql(port=port, folder=folder)
        # SIGQUIT: at once, without waiting for clients.
        with serving(
            [program("postgres"), *place, *options],
            lambda: server.query("SELECT 1"),
            folder / "log",
            stop_signal="SIGQUIT",
            user=user,
        ):
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def initialise(data: Path, user: str) -> None:
    """Make the files of a new cluster."""
    password = data.with_name("password")
    password.write_text(PASSWORD)
    password.chmod(0o644)  # read by another user; the folder is that user's alone
    command = [program("initdb"), "-D", str(data), "-U", USER, "--pwfile", str(password), "--no-sync", "-E", "UTF8"]
    methods = ["--auth-host=scram-sha-256", "--auth-local=reject", "--no-locale", "--no-instructions"]
    outcome = subprocess.run(
        [*command, *methods],
        capture_output=True,
        text=True,
        check=False,
        timeout=INITDB_SECONDS,
        cwd="/",
        user=user or None,
        group=user or None,
        extra_groups=[] if user else None,
    )
    password.unlink()
    assert outcome.returncode == 0, outcome.stderr


def program(name: str) -> str:
    """A program of PostgreSQL's server; Debian keeps them out of PATH."""
    folders = sorted(Path("/").glob(DEBIAN_FOLDERS.lstrip("/")), reverse=True)
    path = os.pathsep.join([*map(str, folders), os.environ.get("PATH", "")])
    found = shutil.which(name, path=path)
    assert found, f"There is no {name}: install PostgreSQL's server (Debian: apt-get install postgresql)"
    return found
