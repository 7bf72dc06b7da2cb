"""The message that carries a row to its topic: what `ctx.emit` sends, and the topic's writer takes.

Does not: know the row's columns (row_schema). Imports nothing of ours.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

EMIT: Final = "emit"
"""Method of the message; its arguments are `Emitted`."""


class Emitted(msgspec.Struct, frozen=True, gc=False):
    """Arguments of the message."""

    schema: str  # text of the row's schema
    time_us: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]  # logical time of the turn, microseconds
    row: list[object]  # values, in the columns' order
