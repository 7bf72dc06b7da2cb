"""Compares what two runs of a program emitted, and says in plain words where they part.

Why it exists: outputs are a function of the log. The k-th message to a target is the same in every run, and its
receiver has it perhaps already; so the first that differs is what its author has to find.

Guarantees: pure. Does not: say whose fault it is; the scenario does. Imports the protocol's messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from deathless.protocols.ambrosia.items import bytes_of
from deathless.protocols.ambrosia.messages import Kind, Oversized, Rpc

SHOWN_BYTES: Final = 24
Item = Rpc | Oversized
Runs = Mapping[str, Sequence[Item]]


class Parting(NamedTuple):
    """Where two runs part.

    Attributes:
        target: that the messages are for; "": the service itself.
        position: of the message among all for this target, from 1.
        method: of it, in the first run; in the second where the first has none there.
        expected: what the first run sent.
        got: what the second sent.
        fewer: the second run sent nothing there.
        more: the first did not.
    """

    target: str
    position: int
    method: int
    expected: str
    got: str
    fewer: bool = False
    more: bool = False


def find_parting(first: Runs, second: Runs, begins: Mapping[str, int], *, prefix: bool = False) -> Parting | None:
    """Give where two runs part, at the first target by name where they do; None: they are equal.

    Args:
        first: target to what the first run sent, from its first start on.
        second: target to what the second sent since it was loaded.
        begins: target to how many messages lie before the place that it was loaded from.
        prefix: the second may end early: it was killed.
    """
    for target in sorted({*first, *second}):
        begin = begins.get(target, 0)
        expected, got = first.get(target, ())[begin:], second.get(target, ())
        for index, (one, other) in enumerate(zip(expected, got, strict=False)):
            if bytes_of(one) != bytes_of(other):
                return Parting(target, begin + index + 1, one.method, show(one), _beside(one, other))
        position = begin + min(len(expected), len(got)) + 1
        if len(got) > len(expected):
            item = got[len(expected)]
            return Parting(target, position, item.method, "no message", show(item), more=True)
        if len(expected) > len(got) and not prefix:
            item = expected[len(got)]
            return Parting(target, position, item.method, show(item), "no message", fewer=True)
    return None


def show(item: Item) -> str:
    """Give a message as people read it."""
    what = f"a {item.kind.name.lower()}" if item.kind in _RETURNS else f"{_NAMES[item.kind]} of method {item.method}"
    if isinstance(item, Oversized):
        return f"{what}, {item.size} bytes, which is too long"
    data = item.arguments
    shown = data[:SHOWN_BYTES].hex() + ("..." if len(data) > SHOWN_BYTES else "")
    number = f" to call {item.sequence}" if item.kind in _RETURNS else ""
    return f"{what}{number} with {len(data)} bytes" + (f": {shown}" if data else "")


def _beside(one: Item, other: Item) -> str:
    """Show the second, and where it begins to differ."""
    text = show(other)
    if isinstance(one, Rpc) and isinstance(other, Rpc) and (one.kind, one.method) == (other.kind, other.method):
        pairs = zip(one.arguments, other.arguments, strict=False)
        at = next(
            (index for index, (a, b) in enumerate(pairs) if a != b), min(len(one.arguments), len(other.arguments))
        )
        return f"{text}; it differs from byte {at} on"
    return text


_RETURNS: Final = frozenset({Kind.VALUE, Kind.VOID, Kind.EXCEPTION})
_NAMES: Final = {Kind.ASYNC: "an awaited call", Kind.FORK: "a fork", Kind.IMPULSE: "an impulse"}
