"""DBOS as a peer of one durable step: a workflow of one step, its states in the PostgreSQL that is a peer anyway.

DBOS is a library: its clients here are threads of the process that runs the workflows, without HTTP between, which
ours have. PostgreSQL has its default durability.

Guarantees: every workflow has its result. Does not: tune the database, or use queues.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
import time
from pathlib import Path
from typing import Final

from bench.peers.table import Missing, end, start_module, tail

NAME: Final = "DBOS on PostgreSQL, its default durability"


async def steps_ms(host: str, folder: Path, *, clients: int, seconds: float) -> float:
    """The median of how long a workflow took, milliseconds. Raises: Missing.

    Args:
        host: folder of the server's socket.
        folder: for the log.
        clients: workflows under way.
        seconds: how long, behind a second of warming up.
    """
    if importlib.util.find_spec("dbos") is None:
        raise Missing("dbos is not installed")
    log = folder / "dbos.log"
    process, _ = await start_module("bench.peers.dbos", host, str(clients), str(seconds), log=log)
    try:
        assert process.stdout is not None
        told = await process.stdout.readline()
        if not told:
            raise Missing(f"it broke: {tail(log)}")
        return float(json.loads(told))
    finally:
        await end(process)


def _main(host: str, clients: int, seconds: float) -> None:
    import statistics  # noqa: PLC0415  of this process alone

    from dbos import DBOS, DBOSConfig  # noqa: PLC0415  a peer may be missing

    url = f"postgresql://bench@/dbos?host={host}"
    DBOS(config=DBOSConfig(name="bench", system_database_url=url, log_level="WARNING"))

    @DBOS.step()
    def nothing(number: int) -> int:
        return number

    @DBOS.workflow()
    def flow(number: int) -> int:
        return nothing(number)

    DBOS.launch()
    print("ready", flush=True)
    took: list[float] = []

    def client(number: int, end_s: float) -> None:
        while (began := time.perf_counter()) < end_s:
            if flow(number) != number:
                raise ValueError("a workflow gave another result")
            took.append((time.perf_counter() - began) * 1000)

    for length in (1.0, seconds):
        took.clear()
        until = time.perf_counter() + length
        threads = [threading.Thread(target=client, args=(number, until)) for number in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(json.dumps(statistics.median(took)), flush=True)
    DBOS.destroy()


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
