"""Queries: run on the state of the last completed turn, never logged, and what they change is lost.

Guarantees: whatever a query raises is an answer. Does not: keep anything. Imports base
and codec.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from deathless.base.errors import CorruptFrame, TooLarge, UnknownHandler
from deathless.codec.messages import Kind, decode
from deathless.codec.wire import error_reply, ok_reply
from deathless.execution.handlers.entities import Entities
from deathless.execution.handlers.plan import Plan, check_key
from deathless.execution.invocations.peer_intake import MALFORMED
from deathless.execution.maps.table import Look
from deathless.execution.turn import depth
from deathless.execution.turn.context import QueryContext
from deathless.execution.turn.turn import Settings, Turn
from deathless.execution.values.failure import ProcessEnds, bounded

_OK: Final = ok_reply(b"")


def unknown(method: bytes, others: Mapping[bytes, Plan], but: str) -> bytes:
    """Give the answer to a name that is not there, or is `but` where it is one of `others`."""
    name = bounded(method.decode(errors="backslashreplace"), 100)
    text = f"{name!r} is {but}" if method in others else f"the service has no {name!r}"
    return error_reply(UnknownHandler.code, UnknownHandler.__name__, text)


class Queries:
    """All queries of a service.

    Args:
        plans: of queries, by method.
        handlers: likewise, to tell what is none.
        settings: of all turns.
    """

    __slots__ = ("_entities", "_failures", "_handlers", "_limits", "_seed", "plans")

    def __init__(
        self, plans: Mapping[bytes, Plan], handlers: Mapping[bytes, Plan], entities: Entities, settings: Settings
    ) -> None:
        self.plans = plans
        self._handlers = handlers
        self._entities = entities
        self._limits = entities.limits
        self._seed = settings.seed
        self._failures = settings.failures

    def answer(self, message: bytes, now_us: int) -> bytes:
        """Run a query.

        Args:
            message: kind CALL, as codec.messages describes; an idempotency key is not looked at.
            now_us: logical time, microseconds.

        Returns: reply bytes.
        """
        limit = depth.enter()
        turn = Turn(self._seed, now_us)
        look = Look(self._entities.maps)
        try:
            return self._answer(message, turn, look)
        finally:
            turn.alive = look.alive = False
            depth.leave(limit)

    def _answer(self, message: bytes, turn: Turn, look: Look) -> bytes:
        """Find the query and run it; whatever that raises is its answer."""
        try:
            kind, method, key, _, encoded = decode(message)
        except CorruptFrame:
            return MALFORMED
        if kind != Kind.CALL:
            return MALFORMED
        plan = self.plans.get(method)
        if plan is None:
            return unknown(method, self._handlers, "a handler: call it")
        name = plan.spec.name
        try:
            try:
                arguments = plan.decode_arguments(encoded)
            except BaseException as error:  # noqa: BLE001  decoding runs the author's `__post_init__`
                return self._failures.of_arguments(error, name, key, 0)
            return self._run(plan, key, arguments, turn, look)
        except ProcessEnds:
            raise
        except BaseException as error:  # noqa: BLE001  a query may raise anything
            return self._failures.of_query(error, name, key)

    def _run(self, plan: Plan, key: bytes, arguments: msgspec.Struct, turn: Turn, look: Look) -> bytes:
        entities = self._entities
        turn.key = b"" if entities.single else key
        seen: object
        if plan.spec.keys:
            keys = plan.keys_of(arguments, self._limits.key_bytes_max)
            if plan.ours:
                [series] = keys.values()
                seen = entities.probes.open(series)
            else:
                entities.check_shard(keys.values())
                seen = MappingProxyType({name: entities.look(key, look) for name, key in keys.items()})
        else:
            if not entities.single:
                check_key(key, self._limits.key_bytes_max, "key")
            seen = entities.look(turn.key, look)
        reply = _OK + plan.encode_result(plan.call(seen, QueryContext(turn), arguments))
        plan.check_result(reply[1:])
        if len(reply) > self._limits.reply_bytes_max:
            raise TooLarge(f"the answer would have {len(reply)} bytes, at most {self._limits.reply_bytes_max}")
        return reply
