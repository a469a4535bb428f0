"""A REST catalog that vends credentials, and a storage that refuses them after they have expired.

There are two proxies in front of SeaweedFS. The catalog's proxy adds a credential to each table that is loaded, as the
REST specification describes; the S3 proxy answers requests with an expired credential as AWS does.
"""

import http.client
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.services.seaweedfs import ACCESS_KEY, FURTHER_KEYS, REGION, SECRET_KEY, SeaweedFs
from tests.services.server import HOST

__all__ = ["Vending", "vending"]

EXPIRED = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"""
HOP = {"connection", "transfer-encoding", "content-length"}
LONG_MS = 3_600_000


@dataclass
class Vending:
    """The two proxies.

    Attributes:
        storage: The server behind them.
        catalog_port: The port of the catalog's proxy.
        s3_port: The port of the storage's proxy.
        keys: Access keys to vend, all of the same identity.
        lives: The lifetime of the next credential in milliseconds, as the client is told.
        vended: The number of credentials vended so far.
        expired: Access keys that the storage refuses.
        before: Called before each request to the storage, with its method and path.
    """

    storage: SeaweedFs
    keys: tuple[str, ...]
    catalog_port: int = 0
    s3_port: int = 0
    lives: int = LONG_MS
    vended: int = 0
    expired: set[str] = field(default_factory=set)
    before: Callable[[str, str], None] = lambda method, path: None

    @property
    def properties(self) -> dict[str, str]:
        """Properties of the catalog, without the storage's credentials."""
        return {**self.storage.rest_catalog("tables"), "uri": f"http://{HOST}:{self.catalog_port}"}

    def expire(self) -> None:
        """Expire all credentials vended so far."""
        self.expired = set(self.keys[: self.vended])

    def vend(self) -> dict[str, str]:
        """Return the properties of another credential."""
        key = self.keys[self.vended]
        self.vended += 1
        return {
            "s3.endpoint": f"http://{HOST}:{self.s3_port}",
            "s3.region": REGION,
            "s3.access-key-id": key,
            "s3.secret-access-key": SECRET_KEY,
            "s3.session-token-expires-at-ms": str(int(time.time() * 1000) + self.lives),
        }

    def answer_of_catalog(self, request: "Proxy", body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        status, headers, content = request.forward(self.storage.catalog_port, body)
        if status == 200 and b'"metadata-location"' in content:
            answer = json.loads(content)
            answer["config"] = {**answer.get("config", {}), **self.vend()}
            content = json.dumps(answer).encode()
        return status, headers, content

    def answer_of_storage(self, request: "Proxy", body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        self.before(request.command, request.path)
        found = re.search(r"Credential=([^/]+)/", request.headers.get("Authorization", ""))
        if found is not None and found[1] in self.expired:
            return 400, [("Content-Type", "application/xml")], b"" if request.command == "HEAD" else EXPIRED
        return request.forward(self.storage.s3_port, body)


class Proxy(BaseHTTPRequestHandler):
    """Answers requests with the result of `answer`; `vending` adds the methods."""

    protocol_version = "HTTP/1.1"
    answer: Callable[["Proxy", bytes], tuple[int, list[tuple[str, str]], bytes]]

    def handle_request(self) -> None:
        """Answer one request."""
        body = b"".join(self.body())
        status, headers, content = type(self).answer(self, body)
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in HOP:
                self.send_header(name, value)
        length = dict(headers).get("Content-Length", "0") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(content)

    def body(self) -> Iterator[bytes]:
        """Yield the bytes after the headers; chunks in their encoded form."""
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            yield self.rfile.read(int(self.headers.get("Content-Length") or 0))
            return
        size = 1
        while size:
            line = self.rfile.readline()
            size = int(line.split(b";")[0], 16)
            yield line + self.rfile.read(size + 2)

    def forward(self, port: int, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """Return the server's answer. The header `Host` is signed, so it is kept."""
        connection = http.client.HTTPConnection(HOST, port, timeout=60)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            response = connection.getresponse()
            return response.status, response.getheaders(), response.read()
        finally:
            connection.close()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def vending(storage: SeaweedFs) -> Iterator[Vending]:
    """Run the proxies during the block."""
    vends = Vending(storage=storage, keys=(ACCESS_KEY, *FURTHER_KEYS))
    servers = []
    for answer in (vends.answer_of_catalog, vends.answer_of_storage):
        methods = {f"do_{method}": Proxy.handle_request for method in ("GET", "HEAD", "PUT", "POST", "DELETE")}
        handler = type("Handler", (Proxy,), {"answer": staticmethod(answer), **methods})
        servers.append(ThreadingHTTPServer((HOST, 0), handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
    vends.catalog_port, vends.s3_port = (server.server_port for server in servers)
    try:
        yield vends
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
