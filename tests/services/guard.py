"""Run as a program: `guard.py SIGNAL USER COMMAND...` runs a server for as long as whoever started it lives.

The server ends when standard input does: that is so when the starter closes it, and also when the starter is killed,
however that comes about. First by SIGNAL, then, if it does not listen, by force.
USER may be empty: then it is ours; to be another it takes root.
"""

import os
import select
import signal
import subprocess
import sys
import threading

PATIENCE_SECONDS = 5
LOOK_SECONDS = 1


def main() -> int:
    """Returns the server's exit code."""
    chosen, user, command = signal.Signals[sys.argv[1]], sys.argv[2] or None, sys.argv[3:]
    groups: list[int] | None = [] if user else None
    server = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, start_new_session=True, user=user, group=user, extra_groups=groups
    )
    starter = os.getppid()

    def stop() -> None:
        # A child that the starter forked may hold our input open after it.
        while os.getppid() == starter and not select.select([sys.stdin], [], [], LOOK_SECONDS)[0]:
            pass
        server.send_signal(chosen)
        try:
            server.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)

    threading.Thread(target=stop, daemon=True).start()
    return server.wait()


if __name__ == "__main__":
    sys.exit(main())
