"""Parquet files with flipped bits in their footers, which have no checksum. Run as a program, in a process of its own.

PyArrow's parser ends the process at some of them (an exception that C++ code does not expect), before ours can say
anything. The program tells each flip before it tries it, so that who started it goes on behind the one that ended it.
"""

import json
import resource
import sys
from pathlib import Path
from typing import Final

from dml.errors import CorruptFileError
from dml.read.open_data_file import open_data_file
from tests.damage.hostile import MemoryIO, peak

__all__ = ["CPU_SECONDS", "LIMIT_BYTES"]

CPU_SECONDS: Final = 60
LIMIT_BYTES: Final = 400 * 2**20


def main() -> None:
    """Flip a bit of each `step`th byte, from `start` on: arguments are the file, `start` and `step`."""
    content, start, step = Path(sys.argv[1]).read_bytes(), int(sys.argv[2]), int(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    base = peak()
    for place in range(start, len(content), step):
        print(place, flush=True)
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        try:
            with open_data_file(MemoryIO({"f": bytes(damaged)}), "f", "parquet", None, size=len(damaged)) as file:
                rows = sum(batch.num_rows for batch in file.batches(file.pieces, range(len(file.fields)), 1000))
            outcome = f"{rows} rows"
        except CorruptFileError:
            outcome = "refused"
        print(json.dumps({"outcome": outcome, "bytes": peak() - base}), flush=True)


if __name__ == "__main__":
    main()
