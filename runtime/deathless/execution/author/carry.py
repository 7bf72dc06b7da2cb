"""What an author gives a suspended handler to go on with where the new code does something else: `carry`.

    @bank.carry("transfer_saga", from_=1)
    def saga(old: Suspended, account: Account) -> Continue:
        return Continue("transfer", step=old.given("reserve", int))

`Suspended` tells of the handler as the former code left it, in that code's words and as plain values. `Continue` names
the handler of the new code that goes on for it, from its beginning, under the same identity.

Guarantees: what is asked of a Suspended is decoded anew each time, so that nothing is changed by changing it. Does not:
decide whether a handler may be carried (execution.invocations.carrying). Imports base and codec.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar, cast, overload

from deathless.codec.untrusted import read_msgpack

T = TypeVar("T")


class Result(NamedTuple):
    """How something ended that a suspended handler had asked for."""

    names: tuple[str, ...]  # by which it is asked for
    value: bytes  # msgpack; of a failure empty
    failure: str  # what failed, in words; empty: nothing


class Suspended:
    """A handler that waits, as the code of an older version left it.

    Args:
        handler: its name in that version.
        key: whose state it works on; empty for a service of one object.
        arguments: msgpack map by name.
        results: of what it had asked for and got, in the order in which it had asked.
        waits_for: what it had asked for and not got, in words.
    """

    __slots__ = ("_arguments", "_handler", "_key", "_results", "_waits_for")

    def __init__(
        self, handler: str, key: str, arguments: bytes, results: Sequence[Result], waits_for: Sequence[str]
    ) -> None:
        self._handler = handler
        self._key = key
        self._arguments = arguments
        self._results = tuple(results)
        self._waits_for = tuple(waits_for)

    def __repr__(self) -> str:
        """Name handler and key."""
        return f"<suspended {self._handler} of key {self._key!r}>"

    @property
    def handler(self) -> str:
        """Its name, as the older version called it."""
        return self._handler

    @property
    def key(self) -> str:
        """Whose state it works on; empty for a service of one object."""
        return self._key

    @property
    def arguments(self) -> Mapping[str, object]:
        """What it was called with, by name, as plain values."""
        return cast("dict[str, object]", read_msgpack(self._arguments, dict))

    @property
    def waits_for(self) -> tuple[str, ...]:
        """What it had asked for and not got, in words: `stock.reserve`, `activity charge`, `a promise`."""
        return self._waits_for

    @overload
    def given(self, name: str) -> object: ...

    @overload
    def given(self, name: str, kind: type[T]) -> T: ...

    def given(self, name: str, kind: type[object] = object) -> object:
        """Give the result of what it had asked for; where it asked several times, the last one.

        Args:
            name: of the activity, or of the handler that was called, as `reserve` or `stock.reserve`; of a promise
                `promise`.
            kind: type that the result is read as; left out: a plain value.

        Raises: KeyError where it was given no such result: it had not asked, or still waits, or that failed.
        """
        found = [each for each in self._results if name in each.names and not each.failure]
        if not found:
            raise KeyError(name)
        return read_msgpack(found[-1].value, kind)

    def has(self, name: str) -> bool:
        """Was it given such a result?"""
        return any(name in each.names and not each.failure for each in self._results)

    def failure(self, name: str) -> str:
        """Give why the last one of that name failed that came to an end, in words; empty: it did not fail."""
        found = [each for each in self._results if name in each.names]
        return found[-1].failure if found else ""


class Continue:
    """How a handler that is carried goes on.

    Args:
        handler: an `async def` handler of the new code, which begins for it.
        arguments: that it begins with, by name.
    """

    __slots__ = ("arguments", "handler")

    def __init__(self, handler: str, /, **arguments: object) -> None:
        self.handler = handler
        self.arguments: Mapping[str, object] = arguments

    def __repr__(self) -> str:
        """Give it as it is written."""
        return f"Continue({', '.join([repr(self.handler), *(f'{k}={v!r}' for k, v in self.arguments.items())])})"
