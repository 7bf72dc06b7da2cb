"""A driver that keeps in memory what was sent to it, as somebody adds it: its own module, and one entry in the list.

It is registered before the manifest's model is loaded; `tests/unit/deathless/base/test_driver_kinds.py` makes its sink.
"""

from __future__ import annotations

from tests.unit.deathless.drivers.memory_sink import Memory, MemorySink

from deathless.base.driver_kinds import DriverKind, register
from deathless.drivers.port import Settings


def sink(settings: Settings) -> MemorySink:
    """Make a sink over a memory of its own."""
    return MemorySink(Memory(epoch=int(str(settings.options["epoch"]))))


register(DriverKind(name="toy", factory=f"{__name__}:sink", extra="toy"))
