"""The servers of the tests: they end with them, however these end."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.services.server import HOST, free_ports, serving

LISTEN = """
import socket, sys, time
with socket.create_server(("127.0.0.1", int(sys.argv[1]))):
    time.sleep(600)
"""
STARTER = """
import sys, time
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from tests.services.test_server import listening
with listening(int(sys.argv[1]), Path(sys.argv[3])):
    print("ready", flush=True)
    time.sleep(600)
"""
ROOT = Path(__file__).parents[2]


def connect(port: int) -> None:
    socket.create_connection((HOST, port), timeout=1).close()


def listening(port: int, log: Path):
    return serving([sys.executable, "-S", "-c", LISTEN, str(port)], lambda: connect(port), log)


def ended(port: int) -> bool:
    """Whether nobody listens any more, in some seconds."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            connect(port)
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_a_server_ends_with_its_block_also_when_that_fails(tmp_path: Path) -> None:
    (port,) = free_ports(1)

    def fail() -> None:
        connect(port)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), listening(port, tmp_path / "log"):
        fail()
    assert ended(port)


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_ends_when_its_starter_and_all_of_its_group_are_killed(sent: signal.Signals, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    command = [sys.executable, "-c", STARTER, str(port), str(ROOT), str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True, cwd="/") as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"ready\n"
        os.killpg(starter.pid, sent)
    assert ended(port)


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    command = [sys.executable, "-S", "-c", "raise SystemExit('no disk')"]
    with pytest.raises(RuntimeError, match="no disk"), serving(command, lambda: connect(1), tmp_path / "log"):
        pass
