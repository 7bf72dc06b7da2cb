"""A client of a connector's source as a process: `python gate_client.py SHARD_DIRECTORY FILE INSTANCE`.

It finds the address in the status that the gate keeps, which names the port that it got.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from examples.readings.send import send

from deathless.shell.link.source_status import read_status
from deathless.shell.net.listening import split_address

SOURCE = "lines"
STREAM = 7
POLL_S = 0.02


def addresses(directory: str) -> Iterator[tuple[str, int]]:
    """Give where the gate listens, as it says now."""
    pause = threading.Event()
    while True:
        status = read_status(directory, SOURCE)
        if status is not None and status.listens:
            yield split_address(status.listens)
        pause.wait(POLL_S)


if __name__ == "__main__":
    rows = Path(sys.argv[2]).read_bytes().splitlines()
    send(addresses(sys.argv[1]), STREAM, rows, sys.argv[3])
