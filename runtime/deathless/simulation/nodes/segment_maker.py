"""The helper of a simulated worker that fills segments ahead of time; twin of the shell's `segment_maker`.

Guarantees: as the shell's: it is told once for each order, and ends with the worker. Does not: measure anything, so
that every seed rolls to such files; take less than MAKE_S, so that logs grow beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from deathless.engine.ports import FileSystem

if TYPE_CHECKING:
    from deathless.simulation.nodes.worker_node import WorkerNode

MAKE_S: Final = 0.02


class SimSegmentMaker:
    """Of one worker."""

    def __init__(self, worker: WorkerNode, filesystem: FileSystem) -> None:
        self._worker = worker
        self._fs = filesystem

    def make(self, path: str, size: int, done: Callable[[bool], None]) -> None:
        """See engine.ports.SegmentMaker."""

        def made() -> None:
            good = self._make(path, size)
            self._worker.answered(lambda: done(good))

        self._worker.call_later(MAKE_S, made)

    def _make(self, path: str, size: int) -> bool:
        try:
            handle = self._fs.create(path)
        except OSError:
            return False
        try:
            self._fs.allocate(handle, 0, size)
            self._fs.write(handle, 0, bytes(size))
            self._fs.sync(handle)
        except OSError:
            return False
        finally:
            self._fs.close(handle)
        return True
