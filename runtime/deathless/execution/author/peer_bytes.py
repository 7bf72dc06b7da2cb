"""Calls of a service by numbers and bytes: `deathless.peer_bytes`.

    counter = peer_bytes("counter")                     whose code is a program in another language
    total = await ctx.call(counter[7], b"..")           bytes, or None where it returns nothing
    ctx.fork(counter[7], b"..")

    bank = peer_bytes("bank")                           a service with methods (`@bank.foreign`), by its keys
    await ctx.call(bank.at("alice")[1], b"5")

Guarantees: what it gives names a service and a method that there can be, or it is refused where it is written. Does
not: look at the other service. Imports codec.
"""

from __future__ import annotations

from deathless.base.errors import ForeignMethodRefused
from deathless.execution.author.foreign_methods import check_method
from deathless.execution.author.instance_names import is_instance_name, service_of
from deathless.execution.turn.method_address import MethodAddress


class BytesPeer:
    """A service, or a key of it, whose methods are called by their numbers.

    Args:
        name: of the service.
        key: of it; empty for a service of one object.
    """

    __slots__ = ("_key", "_service", "name")

    def __init__(self, name: str, key: str = "") -> None:
        self.name = name
        self._service = service_of(name)
        self._key = key

    def __repr__(self) -> str:
        return f"peer_bytes({self.name!r})" + (f".at({self._key!r})" if self._key else "")

    def at(self, key: str) -> BytesPeer:
        """Give a key of it."""
        return BytesPeer(self.name, key)

    def __getitem__(self, method: int) -> MethodAddress:
        """Give a method, for `ctx.call` and `ctx.fork`.

        Args:
            method: its number, [-2**31, 2**31).

        Raises: ForeignMethodRefused.
        """
        return MethodAddress(self._service, self._key, check_method(method, repr(self)))


def peer_bytes(name: str, /) -> BytesPeer:
    """Give calls of a service by numbers and bytes.

    Args:
        name: of the service; or what a program calls itself that was written for AMBROSIA, such as `PTIServer`.

    Raises: ForeignMethodRefused for a name that neither can have.
    """
    if not is_instance_name(name):
        raise ForeignMethodRefused(
            f"peer_bytes({name!r}): that is no name of a service",
            remedy="use lower-case letters, digits and inner dashes; a key goes into .at(key)",
        )
    return BytesPeer(name)
