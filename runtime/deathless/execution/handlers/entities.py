"""Keyed state as a turn gets at it: encoded bytes per key, decoded for a turn, encoded behind it.

Guarantees: what is kept was decoded once, so a state that does not fit its type fails its own turn (see executor); a
turn's changes are kept all together, after every check. Does not: catch anything. Imports base and codec.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from deathless.base.errors import KeysOfSeveralShards, TooLarge, WrongShard
from deathless.base.limits import Limits
from deathless.base.shards import Sharding, shard_of
from deathless.codec.map_entries import prefix_of
from deathless.codec.wire import ok_reply
from deathless.execution.author.service import Service
from deathless.execution.author.signature import Function
from deathless.execution.handlers.plan import Plan, StatePlan, check_key
from deathless.execution.handlers.probe import ProbeTable
from deathless.execution.maps.map import Map, view_of
from deathless.execution.maps.table import Change, Look, MapTable
from deathless.execution.turn.context import Context
from deathless.execution.turn.turn import Turn
from deathless.execution.values.failure import bounded

_OK: Final = ok_reply(b"")


class Changed(NamedTuple):
    """What a turn leaves."""

    states: dict[bytes, bytes]  # by key
    items: Sequence[Change] = ()  # of their maps


class Entities:
    """State of all keys of a shard.

    Args:
        limits: `entity_bytes_max`, `item_bytes_max`, `reply_bytes_max` and `key_bytes_max` are used.
        sharding: which keys live here. No state is begun for another one, so a key that has one need not be looked at.
    """

    __slots__ = ("birth", "limits", "maps", "probes", "sharding", "single", "state", "states")

    def __init__(self, service: Service, limits: Limits, sharding: Sharding | None = None) -> None:
        self.states = StatePlan(service)
        self.birth: Function | None = service.birth_function
        self.single = service.single
        self.limits = limits
        self.sharding = sharding or Sharding()
        self.state: dict[bytes, bytes] = {}  # encoded state by key (UTF-8)
        self.maps = MapTable()  # apart, so that no message finds an item under the key it names
        self.probes = ProbeTable()  # likewise

    def clear(self) -> None:
        """Forget everything."""
        self.state = {}
        self.maps = MapTable()
        self.probes = ProbeTable()

    def all(self) -> dict[bytes, bytes]:
        """Give everything as entries of a checkpoint; it must not be changed."""
        held, maps = self.probes.held, self.maps.maps
        if not (held or maps):
            return self.state
        entries = {**self.state, **held}
        for items in maps.values():
            entries.update(items)
        return entries

    def restore(self, entries: dict[bytes, bytes]) -> None:
        """Replace everything by the entries of a checkpoint.

        Raises: CorruptCheckpoint.
        """
        self.state = self.maps.restore(entries, {field.name for field in self.states.maps})
        self.probes.restore(self.state)

    def open(self, key: bytes, context: Context, look: Look | None = None) -> object:
        """Give the state with which a turn of `key` begins.

        How the turn sees the items of its maps is `look`; None: the service has no maps.

        Raises: InvalidArgument, TooLarge for a key that can't be; whatever the birth handler raises.
        """
        old = self.state.get(key)
        return self.begin(old, key, look) if old is not None else self.bear(key, context, look)

    def begin(self, state: bytes, key: bytes, look: Look | None) -> object:
        """Give a state from its bytes, with maps that are seen by `look`."""
        entity = self.states.decode(state)
        if look is not None:
            for field in self.states.maps:
                view_of(getattr(entity, field.name)).bind(field, prefix_of(key, field.name), look)
        return entity

    def bear(self, key: bytes, context: Context, look: Look | None = None) -> object:
        """Give the state with which a key's first turn begins."""
        if not self.single:
            check_key(key, self.limits.key_bytes_max, "key")
            self.check_shard([key])
        entity = self.begin(self.states.default, key, look)
        if self.birth is not None:
            self.birth(entity, context)
        return entity

    def look(self, key: bytes, look: Look | None = None) -> object:
        """Give the state a query sees. Raises: WrongShard."""
        held = self.state.get(key)
        if held is None and not self.single:
            self.check_shard([key])
        return self.begin(self.states.default if held is None else held, key, look)

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

    def changes(self, entity: object, key: bytes) -> list[Change]:
        """Give what a turn has done to the maps of a state; `close` must follow, which takes their headers.

        Raises: TypeError where a field holds another map than it did; what View.close raises.
        """
        changes = []
        for field in self.states.maps:
            held = getattr(entity, field.name, None)
            view = view_of(held) if type(held) is Map else None
            if view is None or not view.look.alive or view.prefix != prefix_of(key, field.name):
                raise TypeError(
                    f"field {field.name!r} keeps the map it came with; change that one, by clear() and update()"
                )
            change = view.close(self.limits)
            if change is not None:
                changes.append(change)
        return changes

    def run_apart(self, plan: Plan, arguments: msgspec.Struct, context: Context, turn: Turn) -> tuple[Changed, object]:
        """Run a handler of several keys, or of a state with maps; give (what it leaves, result). Nothing is kept yet.

        Raises: KeysOfSeveralShards, WrongShard before it runs; what it raises.
        """
        look = Look(self.maps) if self.states.maps else None
        try:
            if plan.keys:
                entities, result = self._run_several(plan, arguments, context, turn, look)
            else:
                entity = self.open(turn.key, context, look)
                entities, result = {turn.key: entity}, plan.call(entity, context, arguments)
            items: Sequence[Change] = ()
            if look is not None:
                items = [change for key, entity in entities.items() for change in self.changes(entity, key)]
            return Changed({key: self.close(entity) for key, entity in entities.items()}, items), result
        finally:
            if look is not None:
                look.alive = False

    def _run_several(
        self, plan: Plan, arguments: msgspec.Struct, context: Context, turn: Turn, look: Look | None
    ) -> tuple[dict[bytes, object], object]:
        """Run a handler of several keys; give (state by key, result)."""
        keys = plan.keys_of(arguments, self.limits.key_bytes_max)
        self.check_shard(keys.values())
        entities: dict[str, object] = {}
        for name, key in keys.items():
            old = self.state.get(key)
            held = old or self.states.default
            entities[name] = entity = self.begin(held, key, look) if look is not None else self.states.decode(held)
            if old is None and self.birth is not None:
                address, turn.key = turn.key, key
                self.birth(entity, context)
                turn.key = address
        result = plan.call(MappingProxyType(entities), context, arguments)
        return dict(zip(keys.values(), entities.values(), strict=True)), result

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

    def keep(self, changed: Changed, reply: bytes) -> None:
        """Take the new states in, if they and the reply are not too large.

        Raises: TooLarge; nothing was kept then.
        """
        for key, new in changed.states.items():
            self.check_sizes(key, new, reply)
        self.state.update(changed.states)
        for change in changed.items:
            self.maps.apply(change)

    def check_sizes(self, key: bytes, new: bytes, reply: bytes) -> None:
        """Refuse what is too large."""
        limits = self.limits
        if len(new) > limits.entity_bytes_max:
            named = bounded(key.decode(errors="backslashreplace"), 100)
            raise TooLarge(f"state of key {named!r} would have {len(new)} bytes, at most {limits.entity_bytes_max}")
        if len(reply) > limits.reply_bytes_max:
            raise TooLarge(f"the reply would have {len(reply)} bytes, at most {limits.reply_bytes_max}")
