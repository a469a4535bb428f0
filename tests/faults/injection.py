"""A FileIO and a catalog whose n-th call of a kind fails, comes late or is cut short.

Calls are counted over all processes, Spark's Python workers among them: a run has a folder, given as the FileIO's
property `faults.folder`, with one file of lines for each kind of call, and the fault to inject beside them.
"""

import fcntl
import io
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from pyspark import TaskContext

__all__ = ["FOLDER", "Action", "Call", "Fault", "Faults", "FaultyCatalog", "FaultyFileIO", "InjectedError"]

FOLDER: Final = "faults.folder"
FAULT_FILE: Final = "fault.json"
VICTIMS_FILE: Final = "victims.json"
INJECTED: Final = "injected"
DELAY_SECONDS: Final = 0.3
STALL_SECONDS: Final = 30


class Call(StrEnum):
    """Kinds of calls."""

    NEW_INPUT = "new_input"
    LENGTH = "length"
    EXISTS = "exists"
    OPEN = "open"
    READ = "read"
    NEW_OUTPUT = "new_output"
    CREATE = "create"
    WRITE = "write"
    CLOSE = "close"
    DELETE = "delete"
    LOAD_TABLE = "load_table"
    COMMIT = "commit"
    ANSWER = "answer"


class Action(StrEnum):
    """What happens to a call."""

    FAIL = "fail"
    DELAY = "delay"
    CUT = "cut"
    LOSE = "lose"
    STALL = "stall"
    KILL = "kill"
    KILL_WORKER = "kill worker"
    KILL_EXECUTOR = "kill executor"
    KILL_MACHINE = "kill machine"


KILLS: Final = frozenset({Action.KILL, Action.KILL_WORKER, Action.KILL_EXECUTOR, Action.KILL_MACHINE})


class InjectedError(OSError):
    """What an injected failure raises; a storage's error as the operating system gives it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Which call is hit.

    Attributes:
        call: The kind.
        first: The number of the call that is hit, from 1.
        last: The number of the last one.
        action: What happens: `LOSE` is for commits, which then lose a race; `KILL` kills the processes that
            `Faults.victims` names, which need not be the one that calls, the others the process that calls, the
            executor that it works for, or that with the worker of a standalone cluster and all that it has started;
            `STALL` waits until somebody loses patience.
    """

    call: Call
    first: int
    last: int
    action: Action = Action.FAIL


class Faults:
    """One run's faults, in a folder that all processes see.

    Args:
        folder: The folder; it is made if it is not there.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)

    @property
    def folder(self) -> str:
        return str(self._folder)

    def inject(self, *faults: Fault) -> None:
        """From now on these calls are hit."""
        (self._folder / FAULT_FILE).write_text(json.dumps([asdict(fault) for fault in faults]))

    def victims(self, *pids: int) -> None:
        """The processes that a `KILL` kills."""
        (self._folder / VICTIMS_FILE).write_text(json.dumps(pids))

    def calls(self) -> dict[Call, list[str]]:
        """What was called so far, by kind: the locations in their order."""
        found = {call: self._folder / call for call in Call}
        return {call: path.read_text().splitlines() for call, path in found.items() if path.is_file()}

    def injected(self) -> list[str]:
        """The kind, the number and the location of each call that was hit."""
        path = self._folder / INJECTED
        return path.read_text().splitlines() if path.is_file() else []

    def hit(self, call: Call, location: str) -> Action | None:
        """Count a call; fail it or let it wait if that is its fault.

        Returns:
            What else the caller has to do to it.

        Raises:
            InjectedError: it fails.
        """
        with (self._folder / call).open("a+") as lines:
            fcntl.flock(lines, fcntl.LOCK_EX)  # opened anew for each call: threads of one process wait too
            lines.seek(0)
            number = len(lines.readlines()) + 1
            lines.write(f"{location}\n")
        action = self._action(call, number)
        if action is not None:
            with (self._folder / INJECTED).open("a") as log:
                log.write(f"{call} {number} {action} {location}\n")
        if action is Action.FAIL:
            raise InjectedError(5, f"Injected fault at call {number} of {call}")  # without the location, as most are
        if action is Action.DELAY:
            time.sleep(DELAY_SECONDS)
        if action is Action.STALL:
            time.sleep(STALL_SECONDS)
        if action in KILLS:
            for pid in self._victims(action):
                os.kill(pid, signal.SIGKILL)
        if action is Action.KILL_EXECUTOR:
            time.sleep(STALL_SECONDS)  # its workers end with it
        return action

    def _victims(self, action: Action) -> list[int]:
        by_workers = action in {Action.KILL_WORKER, Action.KILL_EXECUTOR, Action.KILL_MACHINE}
        assert not by_workers or TaskContext.get() is not None, "the driver would kill itself and its parents"
        match action:
            case Action.KILL_WORKER:
                return [os.getpid()]
            case Action.KILL_EXECUTOR:
                return [parent_of(os.getppid())]
            case Action.KILL_MACHINE:
                daemon = os.getppid()
                executor = parent_of(daemon)
                return [parent_of(executor), executor, daemon, os.getpid()]
            case _:
                return list(json.loads((self._folder / VICTIMS_FILE).read_text()))

    def _action(self, call: Call, number: int) -> Action | None:
        path = self._folder / FAULT_FILE
        if not path.is_file():
            return None
        for fault in json.loads(path.read_text()):
            if fault["call"] == call and fault["first"] <= number <= fault["last"]:
                return Action(fault["action"])
        return None


def parent_of(pid: int) -> int:
    """Return the parent of a process, which follows the name and the state in `stat`."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class FaultyReader(io.RawIOBase):
    """An open file whose reads can fail."""

    def __init__(self, stream: Any, location: str, faults: Faults) -> None:
        super().__init__()
        self._stream, self._location, self._faults = stream, location, faults

    def read(self, size: int | None = -1) -> bytes:
        action = self._faults.hit(Call.READ, self._location)
        data = bytes(self._stream.read() if size is None or size < 0 else self._stream.read(size))
        return data[: len(data) // 2] if action is Action.CUT else data

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        return int(self._stream.tell())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self._stream.close()
        super().close()


class FaultyWriter(io.RawIOBase):
    """A new file whose writes can fail; one that is cut writes half of its bytes before."""

    def __init__(self, stream: Any, location: str, faults: Faults) -> None:
        super().__init__()
        self._stream, self._location, self._faults = stream, location, faults

    def write(self, data: Any) -> int:
        action = self._faults.hit(Call.WRITE, self._location)
        if action is Action.CUT:
            self._stream.write(bytes(data)[: len(data) // 2])
            raise InjectedError(28, "Injected fault: no space left on device")
        self._stream.write(data)
        return len(data)

    def tell(self) -> int:
        return int(self._stream.tell())

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        if self.closed:
            return
        try:
            self._faults.hit(Call.CLOSE, self._location)
        finally:
            self._stream.close()
            super().close()


class FaultyFile(InputFile, OutputFile):
    """A file of a FileIO."""

    def __init__(self, file: Any, faults: Faults) -> None:
        super().__init__(file.location)
        self._file, self._faults = file, faults

    def __len__(self) -> int:
        action = self._faults.hit(Call.LENGTH, self.location)
        return len(self._file) // 2 if action is Action.CUT else len(self._file)

    def exists(self) -> bool:
        self._faults.hit(Call.EXISTS, self.location)
        return bool(self._file.exists())

    def open(self, seekable: bool = True) -> InputStream:
        action = self._faults.hit(Call.OPEN, self.location)
        stream = self._file.open(seekable)
        if action is Action.CUT:
            data = bytes(stream.read())
            stream = io.BytesIO(data[: len(data) // 2])
        return FaultyReader(stream, self.location, self._faults)

    def to_input_file(self) -> InputFile:
        return self

    def create(self, overwrite: bool = False) -> OutputStream:
        self._faults.hit(Call.CREATE, self.location)
        return FaultyWriter(self._file.create(overwrite), self.location, self._faults)


class FaultyFileIO(PyArrowFileIO):
    """PyArrow's FileIO with faults; named by `py-io-impl`, so that workers load it too."""

    def __init__(self, properties: dict[str, str]) -> None:
        super().__init__(properties)
        self._faults = Faults(properties[FOLDER])

    def new_input(self, location: str) -> Any:
        self._faults.hit(Call.NEW_INPUT, location)
        return FaultyFile(super().new_input(location), self._faults)

    def new_output(self, location: str) -> Any:
        self._faults.hit(Call.NEW_OUTPUT, location)
        return FaultyFile(super().new_output(location), self._faults)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self._faults.hit(Call.DELETE, location if isinstance(location, str) else location.location)
        super().delete(location)


class FaultyCatalog(SqlCatalog):
    """PyIceberg's SQL catalog with faults; its property `faults.folder` may change between runs."""

    def load_table(self, identifier: str | Identifier) -> Table:
        with network():
            Faults(self.properties[FOLDER]).hit(Call.LOAD_TABLE, str(identifier))
        return super().load_table(identifier)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        faults, name = Faults(self.properties[FOLDER]), str(table.name())
        with network():
            action = faults.hit(Call.COMMIT, name)
        if action is Action.LOSE:
            raise CommitFailedException("Injected fault: somebody was faster")
        response = super().commit_table(table, requirements, updates)
        with network():
            faults.hit(Call.ANSWER, name)
        return response


@contextmanager
def network() -> Iterator[None]:
    """What fails inside is a connection."""
    try:
        yield
    except InjectedError as error:
        raise ConnectionError(str(error)) from error
