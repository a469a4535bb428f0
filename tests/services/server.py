"""Servers for tests: started on this machine's loopback, with a bound on every wait, and ended with the tests."""

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

__all__ = ["HOST", "free_ports", "serving", "silent_port"]

HOST = "127.0.0.1"
GUARD = Path(__file__).with_name("guard.py")
START_SECONDS = 60
STOP_SECONDS = 10
LOOK_SECONDS = 0.05


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on; all are held until all are found, so that they differ."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [int(one.getsockname()[1]) for one in sockets]


@contextlib.contextmanager
def silent_port() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen()
        yield int(listener.getsockname()[1])


@contextlib.contextmanager
def serving(
    command: Sequence[str],
    ready: Callable[[], object],
    log: Path,
    *,
    stop_signal: str = "SIGTERM",
    user: str = "",
    seconds: float = START_SECONDS,
) -> Iterator[None]:
    """Run a server while the block runs.

    Args:
        command: The program and its arguments.
        ready: Asks the server for something; it raises until the server serves.
        log: Where its output goes; shown if it does not start.
        stop_signal: What tells it to end.
        user: Whom it runs as; the user of the tests if empty.
        seconds: How long it may take until it serves.

    Raises:
        RuntimeError: it ended, or did not serve in time.
    """
    guarded = [sys.executable, "-S", str(GUARD), stop_signal, user, *command]
    with log.open("wb") as output:
        # In a session of its own: what is sent to the tests' process group does not end the guard before the server.
        process = subprocess.Popen(
            guarded, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, cwd="/", start_new_session=True
        )
    assert process.stdin is not None
    try:
        wait_until(ready, process, log, seconds)
        yield
    finally:
        process.stdin.close()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until(ready: Callable[[], object], process: subprocess.Popen[bytes], log: Path, seconds: float) -> None:
    """Ask until there is an answer, the process has ended or the time is up."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            ready()
        except Exception as error:
            if process.poll() is None and time.monotonic() < deadline:
                time.sleep(LOOK_SECONDS)
                continue
            text = log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"The server does not serve: {error}\n{process.args!r}\n{text}") from error
        else:
            return
