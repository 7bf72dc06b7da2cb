"""A cluster for looks: whatever is done or told there succeeds and changes nothing."""

from __future__ import annotations


class Willing:
    """The hands of a reconciler; a test adds what is seen."""

    async def perform(self, *_: object) -> None:
        """Carry a step out."""

    async def carry_out(self, *_: object) -> tuple[object, ...]:
        """Carry a plan out."""
        return ()

    async def write_status(self, *_: object) -> bool:
        """Write the status; it is the one that was read."""
        return True

    async def tell(self, *_: object) -> None:
        """Tell an event."""

    def forget(self, *_: object) -> None:
        """Read anew at the next look."""
