"""Keyed state as a turn gets at it: encoded bytes per key, decoded for a turn, encoded behind it.

Guarantees: what is kept was decoded once, so a state that does not fit its type fails its own turn (see executor); a
turn's changes are kept all together, after every check. Does not: catch anything. Imports base and codec.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Final

import msgspec

from deathless.base.errors import KeysOfSeveralShards, TooLarge, WrongShard
from deathless.base.limits import Limits
from deathless.base.shards import Sharding, shard_of
from deathless.codec.wire import ok_reply
from deathless.execution.context import Context
from deathless.execution.failure import bounded
from deathless.execution.plan import Plan, StatePlan, check_key
from deathless.execution.probe import ProbeTable
from deathless.execution.service import Service
from deathless.execution.signature import Function
from deathless.execution.turn import Turn

_OK: Final = ok_reply(b"")


class Entities:
    """State of all keys of a shard.

    Args:
        limits: `entity_bytes_max`, `reply_bytes_max` and `key_bytes_max` are used.
        sharding: which keys live here. No state is begun for another one, so a key that has one need not be looked at.
    """

    __slots__ = ("birth", "limits", "probes", "sharding", "single", "state", "states")

    def __init__(self, service: Service, limits: Limits, sharding: Sharding | None = None) -> None:
        self.states = StatePlan(service)
        self.birth: Function | None = service.birth_function
        self.single = service.single
        self.limits = limits
        self.sharding = sharding or Sharding()
        self.state: dict[bytes, bytes] = {}  # encoded state by key (UTF-8)
        self.probes = ProbeTable()  # apart, so that no message finds it under the key it names

    def clear(self) -> None:
        """Forget everything."""
        self.state = {}
        self.probes = ProbeTable()

    def open(self, key: bytes, context: Context) -> object:
        """Give the state with which a turn of `key` begins.

        Raises: InvalidArgument, TooLarge for a key that can't be; whatever the birth handler raises.
        """
        old = self.state.get(key)
        return self.states.decode(old) if old is not None else self.bear(key, context)

    def bear(self, key: bytes, context: Context) -> object:
        """Give the state with which a key's first turn begins."""
        if not self.single:
            check_key(key, self.limits.key_bytes_max, "key")
            self.check_shard([key])
        entity = self.states.decode(self.states.default)
        if self.birth is not None:
            self.birth(entity, context)
        return entity

    def look(self, key: bytes) -> object:
        """Give the state a query sees. Raises: WrongShard."""
        held = self.state.get(key)
        if held is None and not self.single:
            self.check_shard([key])
        return self.states.decode(self.states.default if held is None else held)

    def check_shard(self, keys: Iterable[bytes]) -> None:
        """Refuse keys that do not all live here.

        Raises: KeysOfSeveralShards, WrongShard.
        """
        ours = self.sharding
        if ours.shards == 1:
            return
        places = {shard_of(key, ours.shards): bounded(key.decode(errors="replace"), 100) for key in keys}
        if len(places) > 1:
            told = ", ".join(f"{key!r} of shard {shard}" for shard, key in sorted(places.items())[:2])
            raise KeysOfSeveralShards(f"one turn works on keys of one shard, not on {told}")
        for shard, key in places.items():
            if shard != ours.shard:
                raise WrongShard(f"key {key!r} lives on shard {shard} of {ours.shards}, this is shard {ours.shard}")

    def close(self, entity: object) -> bytes:
        """Give the bytes of a state behind its turn."""
        new = self.states.encode(entity)
        self.states.decode(new)
        return new

    def run_several(
        self, plan: Plan, arguments: msgspec.Struct, context: Context, turn: Turn
    ) -> tuple[dict[bytes, bytes], object]:
        """Run a handler of several keys; give (new state by key, result). Nothing is kept yet.

        Raises: KeysOfSeveralShards, WrongShard before it runs; what it raises.
        """
        keys = plan.keys_of(arguments, self.limits.key_bytes_max)
        self.check_shard(keys.values())
        entities: dict[str, object] = {}
        for name, key in keys.items():
            old = self.state.get(key)
            entities[name] = entity = self.states.decode(old or self.states.default)
            if old is None and self.birth is not None:
                address, turn.key = turn.key, key
                self.birth(entity, context)
                turn.key = address
        result = plan.call(MappingProxyType(entities), context, arguments)
        return {key: self.close(entities[name]) for name, key in keys.items()}, result

    def run_ours(self, plan: Plan, arguments: msgspec.Struct, context: Context, turn: Turn) -> tuple[bytes, bytes]:
        """Run a built-in handler; give (what it wrote, reply). Nothing is kept if it raises."""
        [series] = plan.keys_of(arguments, self.limits.key_bytes_max).values()
        probed = self.probes.open(series)
        reply = _OK + plan.encode_result(plan.call(probed, context, arguments))
        return self.probes.keep(series, probed, turn.lsn) + reply, reply

    def reply(self, plan: Plan, result: object) -> bytes:
        """Give the reply around a result; one that does not fit its type raises."""
        reply = _OK + plan.encode_result(result)
        if type(result) is not plan.scalar:
            plan.check_result(reply[1:])
        return reply

    def keep(self, changed: dict[bytes, bytes], reply: bytes) -> None:
        """Take the new states in, if they and the reply are not too large.

        Raises: TooLarge; nothing was kept then.
        """
        for key, new in changed.items():
            self.check_sizes(key, new, reply)
        self.state.update(changed)

    def check_sizes(self, key: bytes, new: bytes, reply: bytes) -> None:
        """Refuse what is too large."""
        limits = self.limits
        if len(new) > limits.entity_bytes_max:
            named = bounded(key.decode(errors="backslashreplace"), 100)
            raise TooLarge(f"state of key {named!r} would have {len(new)} bytes, at most {limits.entity_bytes_max}")
        if len(reply) > limits.reply_bytes_max:
            raise TooLarge(f"the reply would have {len(reply)} bytes, at most {limits.reply_bytes_max}")
