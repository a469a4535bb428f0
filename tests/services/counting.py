"""A proxy that forwards bytes unchanged and records the HTTP requests among them."""

import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from tests.services.server import HOST

__all__ = ["Request", "Requests", "counting"]

REQUEST_LINE = re.compile(rb"(PUT|POST|GET|HEAD|DELETE) (/\S*) HTTP/1\.1\r\n")
LONGEST_LINE = 4096


@dataclass(frozen=True, kw_only=True)
class Request:
    """An HTTP request.

    Attributes:
        method: GET, PUT and so on.
        path: The path without the query.
        query: The query.
    """

    method: str
    path: str
    query: str


@dataclass
class Requests:
    """The requests that a proxy has forwarded.

    Attributes:
        port: The port on which the proxy listens.
        seen: The requests, in order.
    """

    port: int
    seen: list[Request] = field(default_factory=list)

    def writes(self) -> dict[str, list[str]]:
        """Return methods and queries of the requests that write objects, by the object's path."""
        found: dict[str, list[str]] = {}
        for request in self.seen:
            if request.method in {"PUT", "POST"} and request.query != "delete=" and request.query != "delete":
                found.setdefault(request.path, []).append(f"{request.method} {request.query}".strip())
        return found


@contextlib.contextmanager
def counting(port: int) -> Iterator[Requests]:
    """Run a proxy for a port of this machine during the block."""
    with socket.create_server((HOST, 0)) as listener:
        requests = Requests(port=listener.getsockname()[1])
        threading.Thread(target=accept, args=(listener, port, requests), daemon=True).start()
        try:
            yield requests
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def accept(listener: socket.socket, port: int, requests: Requests) -> None:
    """Forward each connection until the listener is closed."""
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        server = socket.create_connection((HOST, port))
        threading.Thread(target=forward, args=(client, server, requests), daemon=True).start()
        threading.Thread(target=forward, args=(server, client, None), daemon=True).start()


def forward(source: socket.socket, target: socket.socket, requests: Requests | None) -> None:
    """Forward bytes from one side to the other, and record the requests in them."""
    tail = b""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            if requests is not None:
                text = tail + data
                end = 0
                for line in REQUEST_LINE.finditer(text):
                    parts = urlsplit(line[2].decode())
                    requests.seen.append(Request(method=line[1].decode(), path=unquote(parts.path), query=parts.query))
                    end = line.end()
                tail = text[max(end, len(text) - LONGEST_LINE) :]
            target.sendall(data)
    for side in (source, target):
        with contextlib.suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)
