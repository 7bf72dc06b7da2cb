"""Migrates stored state: from the entries of one version's checkpoint to those of the next.

    migrator = Migrator(service, before, time_us=..., limits=limits)
    entries = migrator.group(states, items)         some keys, as they are read
    migrate_state(state, service, before, ...)      all of a checkpoint's

A key's new state is a function of its old one, of the code, and of one time that is constant for the upgrade. So keys
may be migrated in any order, ahead of the cut, again where they changed, and by two replicas apart.

What can't be migrated is counted by kind, with the first key of each, and left out of what is given; with a misfit
nothing of it may be used. Entries under keys that are not a user's pass as they are.

Guarantees: the same entries for the same state and code, in any order; every new state decodes as its type and is
within the limits. Raises what must end the process (see failure), and nothing for what a function of the author's does.
Does not: check that a function is deterministic (see determinism). Imports base and codec.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

import msgspec
from msgspec import inspect as shapes

from deathless.base.errors import CorruptCheckpoint, DeathlessError, InvalidService, TooLarge
from deathless.base.limits import Limits
from deathless.base.shards import shard_of, tag_of
from deathless.codec.map_entries import PREFIX, prefix_of, show_key, take_apart
from deathless.execution.author.changes import Gap, Hop
from deathless.execution.author.migration import Migration
from deathless.execution.author.service import Service
from deathless.execution.declared.type_shapes import walk_from
from deathless.execution.declared.unknown_fields import class_name
from deathless.execution.handlers.plan import encoder
from deathless.execution.interface.interface import Interface
from deathless.execution.interface.misfit import Misfit, Tally
from deathless.execution.maps.map import encode_map
from deathless.execution.migration.hop import Passed, Stretch, Unknown
from deathless.execution.migration.items import NO_ITEMS, Items
from deathless.execution.values.failure import FATAL, bounded
from deathless.execution.values.function import place

GROUP_KEYS: Final = 4096
"""Keys that are migrated between two words about how far it is."""

_PLACE: Final = re.compile(r" - at `(?:key in )?\$([^`]*)`")
_INDEX: Final = re.compile(r"\[[^\]]*\]")
Told = Callable[[int, int], object]
"""Is told how many keys are done, and of how many."""


def untold(_done: int, _of: int) -> None:
    """Tell nobody."""


class Migrator:
    """Migrates keys of one service.

    Args:
        service: with the new code.
        before: interface of the code that wrote what stands; None: not known, it counts as of the version before.
        time_us: of the upgrade, microseconds since 1970-01-01 UTC; the same for every key.
        limits: of the new code.
        shards: of the service.
        upgrade: names the upgrade, in the hash of maps.
        target: version to which it leads; 0: the service's own. A lower one takes the way back.

    Raises: InvalidService where no way leads there.
    """

    def __init__(
        self,
        service: Service,
        before: Interface | None,
        *,
        time_us: int,
        limits: Limits,
        shards: int = 1,
        upgrade: bytes = b"",
        target: int = 0,
    ) -> None:
        self.service = service
        self.version = version_before(service, before) if not target else service.version
        way = service.declared.way(self.version, target)
        if isinstance(way, Gap):
            raise InvalidService(f"service {service.name}: {way.why}", remedy=f"write @migrate(from_={way.at})")
        state = service.state
        self.hops = way or [Hop(self.version, service.version, None, {}, None, state, state)]
        self._names = _names_of(self.hops[0], before)
        drops = _pairs(service.declared.drops(self.version), self._names)
        self._stretches = [
            Stretch(hop, limits, upgrade, strict=index == 0, drops=drops) for index, hop in enumerate(self.hops)
        ]
        self.m = Migration(time_us)
        self.tally = Tally()
        self.keys = 0  # migrated, or found not to fit
        self._shards = shards
        self._target = target
        self._drops = drops
        self._seen: dict[bytes, bytes] = {}  # old key by new one, where keys are renamed
        self._renames = any(hop.key is not None for hop in self.hops)
        self._old_maps = _maps_of(before)
        self.flat = len(self.hops) == 1 and not self._renames and not self._stretches[0].has_maps

    @property
    def misfits(self) -> list[Misfit]:
        """What did not fit so far."""
        return self.tally.misfits(self.keys)

    def group(
        self, states: Iterable[tuple[bytes, bytes]], items: Mapping[bytes, Items] | None = None
    ) -> dict[bytes, bytes]:
        """Migrate some keys; gives the entries of the new state, those of items as well.

        Args:
            states: key and encoded state.
            items: of their maps, by key.
        """
        if self.flat and not items:
            return self._flat(states)
        entries: dict[bytes, bytes] = {}
        for key, data in states:
            passed = self.migrate(key, data, items.get(key, NO_ITEMS) if items else NO_ITEMS)
            if passed is None:
                continue
            entries[passed.key] = passed.state
            for field, held in passed.items.items():
                prefix = prefix_of(passed.key, field)
                for item, new in held.items():
                    entries[prefix + item] = new
        return entries

    def _flat(self, states: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
        """States without maps, under their own names, in one stretch: most services, most of their keys."""
        m, plain = self.m, self._stretches[0].plain
        entries: dict[bytes, bytes] = {}
        done = 0
        for key, data in states:
            done += 1
            m.key_bytes = key
            try:
                entries[key] = plain(data, m)
            except BaseException as error:  # noqa: BLE001  a function is the author's code and may raise anything
                self._count(0, key, data, error)
        self.keys += done
        return entries

    def migrate(self, key: bytes, state: bytes, items: Items = NO_ITEMS) -> Passed | None:
        """Migrate one key; None: it does not fit, and was counted."""
        self.keys += 1
        passed = Passed(key, state, items)
        if items and not self._maps_stand(key, items):
            return None
        for index, stretch in enumerate(self._stretches):
            before = passed
            try:
                passed = stretch.whole(before.key, before.state, before.items, self.m)
            except BaseException as error:  # noqa: BLE001  as above
                self._count(index, key, before.state, error)
                return None
        return passed if not self._renames or self._may_be_called(key, passed.key) else None

    def canonical(self, state: bytes) -> bytes:
        """Give an old state as the first old type encodes it.

        Raises: msgspec.ValidationError.
        """
        first = self._stretches[0]
        return encoder(first.hop.old, encode_map if first.old_maps else None)(first.decode(state))

    def _maps_stand(self, key: bytes, items: Items) -> bool:
        """Count items of maps that the new code has no place for, unless the old code had none for them either."""
        first = self._stretches[0]
        name = first.hop.old.__name__
        for field, held in items.items():
            if not held or field in first.old_maps or (name, field) in self._drops:
                continue
            if self._old_maps is not None and field not in self._old_maps:
                continue
            subject = f"{self._names.get(name, name)}.{field}"
            what = f"map {subject} of version {self.version} is not in {name}, with all its items"
            self.tally.add("MapGone", subject, what, f'{self._remedy}, or drops=["{subject}"]', _show(key))
            return False
        return True

    def _may_be_called(self, old: bytes, new: bytes) -> bool:
        taken = self._seen.setdefault(new, old)
        name = next(place(hop.key.function) for hop in self.hops if hop.key is not None)
        remedy = "migrate_key gives each key a name of its own"
        if taken != old:
            first = f"{_show(taken)} and {_show(old)}, both {_show(new)}"
            self.tally.add("KeysCollide", "keys", f"{name} gives two keys one name", remedy, first)
            return False
        if old != new and self._shards > 1 and (tag_of(old) is None or tag_of(old) != tag_of(new)):
            where = f"{_show(old)}, which would be {_show(new)}"
            what = f"{name} changes what of a key says on which of {self._shards} shards it lives"
            self.tally.add("KeyLeavesShard", "keys", what, "keep the {tag} of each key", where)
            return False
        assert old == new or shard_of(old, self._shards) == shard_of(new, self._shards), "the tag says it"
        return True

    # ---- what went wrong ------------------------------------------------------------------------------------

    @property
    def _remedy(self) -> str:
        to = f", to={self._target}" if self._target else ""
        return f"write @{self.service.name.replace('-', '_')}.migrate(from_={self.version}{to})"

    def _count(self, index: int, key: bytes, data: bytes, error: BaseException) -> None:
        """Count what one key met, by kind.

        Raises: the error, where it must end the process.
        """
        if isinstance(error, (*FATAL, KeyboardInterrupt)):
            raise error
        stretch = self._stretches[index]
        first, add = _show(key), self.tally.add
        hop = stretch.hop
        functions = [each.function for each in (hop.state, *hop.maps.values(), hop.key) if each is not None]
        if isinstance(error, Unknown):
            for cls, field in sorted(set(error.found)):
                subject = f"{self._names.get(cls, cls)}.{field}"
                what = f"{subject} of version {self.version} is not in {cls} of version {hop.to}"
                is_map = cls == hop.old.__name__ and field in (self._old_maps or ())
                add(
                    "MapGone" if is_map else "FieldDropped",
                    subject,
                    what,
                    f'{self._remedy}, or drops=["{subject}"]',
                    first,
                )
        elif isinstance(error, TooLarge):
            remedy = "keep less of it, or raise the limit"
            add("TooLarge", f"version {hop.to}", f"a migrated key is too large: {error.message}", remedy, first)
        elif (unread := _unread(stretch, data)) is not None:
            cls, field = _place_in(hop.old, unread)
            subject = f"{self._names.get(cls, cls)}.{field}" if field else self._names.get(cls, cls)
            what = f"{subject} of version {self.version} can't be read: {_PLACE.sub('', bounded(str(unread)))}"
            add("FieldTypeChanged", subject, what, self._remedy if not functions else "mend its old type", first)
        elif not functions:
            what = f"a state of version {self.version} can't be written as {hop.new.__name__}: {_said(error)}"
            add("MigrationUnfit", hop.new.__name__, what, self._remedy, first)
        elif isinstance(error, msgspec.MsgspecError):
            what = f"what {place(functions[0])} gave is no {hop.new.__name__}: {bounded(str(error))}"
            add("MigrationUnfit", hop.new.__name__, what, "give what the type says", first)
        else:
            name = getattr(functions[0], "__name__", "migrate") if len(functions) == 1 else "a migration"
            what = f"key {first}: {_said(error)}"
            add("MigrationRaised", name, what, "see to this key in the function", first)


def _unread(stretch: Stretch, data: bytes) -> Exception | None:
    """Give why bytes are not of the old type; None: they are."""
    try:
        stretch.decode(data)
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        return error
    return None


def _said(error: BaseException) -> str:
    try:
        text = error.message if isinstance(error, DeathlessError) else str(error)
    except Exception:  # noqa: BLE001  its text is the author's code as well
        text = "(its text can't be given)"
    return bounded(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def _place_in(state: type, error: Exception) -> tuple[str, str]:
    """Give class and field that an error names, the innermost one: (Address, street)."""
    found = _PLACE.search(str(error))
    cls, named = state.__name__, ""
    shape: shapes.Type = shapes.type_info(state)
    for name in _INDEX.sub("", found[1]).split(".")[1:] if found else ():
        held = next(
            (
                (each, field)
                for each in walk_from(shape)
                for field in getattr(each, "fields", ())
                if field.encode_name == name
            ),
            None,
        )
        if held is None:
            break
        cls, named, shape = class_name(getattr(held[0], "cls", state)), name, held[1].type
    return cls, named


def _show(key: bytes) -> str:
    return bounded(show_key(key), 100) or "(the one object)"


def version_before(service: Service, before: Interface | None) -> int:
    """Give the version that stands: what its interface says; without one the version before the code's own."""
    return before.version if before is not None else max(service.version - 1, 1)


def _names_of(hop: Hop, before: Interface | None) -> dict[str, str]:
    """Give what the old code calls the classes of the first type: the one of the state may have another name now."""
    return {} if before is None else {hop.old.__name__: before.state_name}


def _maps_of(before: Interface | None) -> frozenset[str] | None:
    if before is None:
        return None
    return frozenset(field.name for field in before.classes[before.state.at].fields if field.type.kind == "map")


def _pairs(drops: frozenset[str], names: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """Give what may be lost as (class, field), by the names of either code."""
    found = {(cls, field) for cls, _, field in (name.rpartition(".") for name in drops)}
    for ours, theirs in names.items():
        found |= {(ours, field) for cls, field in found if cls == theirs}
    return frozenset(found)


def parted(state: Mapping[bytes, bytes]) -> tuple[list[bytes], dict[bytes, dict[str, dict[bytes, bytes]]], list[bytes]]:
    """Give the keys of users, the items of their maps by key, and the other keys, of a checkpoint's state.

    Raises: CorruptCheckpoint for items of a key that has no state.
    """
    keys: list[bytes] = []
    others: list[bytes] = []
    items: dict[bytes, dict[str, dict[bytes, bytes]]] = {}
    prefix, held = b"", {}
    for key in state:
        if key[:1] != b"\0":
            keys.append(key)
        elif not key.startswith(PREFIX):
            others.append(key)
        else:
            if not prefix or not key.startswith(prefix):
                entry = take_apart(key)
                if entry.key not in state:
                    raise CorruptCheckpoint(
                        f"map {entry.field!r} has items of key {entry.key[:100]!r}, which has no state"
                    )
                prefix = entry.prefix
                held = items.setdefault(entry.key, {}).setdefault(entry.field, {})
            held[key[len(prefix) :]] = state[key]
    return keys, items, others


def migrate_state(
    state: Mapping[bytes, bytes],
    service: Service,
    before: Interface | None,
    *,
    time_us: int,
    limits: Limits | None = None,
    shards: int = 1,
    upgrade: bytes = b"",
    told: Told = untold,
) -> tuple[dict[bytes, bytes], list[Misfit]]:
    """Migrate all of a checkpoint's state.

    Args:
        state: its entries; not changed.
        service: with the new code.
        before: interface of the code that wrote them; None: not known.
        time_us: as for Migrator, as are the others.
        limits: None: those that a service has by default.
        shards: of the service.
        upgrade: names the upgrade.
        told: is told how far it is.

    Returns: the new entries, and what does not fit; with any they must not be used.
    Raises: InvalidService where no way leads to the new version; CorruptCheckpoint.
    """
    migrator = Migrator(service, before, time_us=time_us, limits=limits or Limits(), shards=shards, upgrade=upgrade)
    return migrate_all(state, migrator, told)


def migrate_all(
    state: Mapping[bytes, bytes], migrator: Migrator, told: Told = untold
) -> tuple[dict[bytes, bytes], list[Misfit]]:
    """Migrate all of a checkpoint's state by a migrator; otherwise as `migrate_state`. Raises: CorruptCheckpoint."""
    keys, items, others = parted(state)
    entries = {key: state[key] for key in others}
    for group in _groups(keys):
        entries.update(migrator.group(((key, state[key]) for key in group), items))
        told(migrator.keys, len(keys))
    return entries, migrator.misfits


def _groups(keys: Iterable[bytes]) -> Iterator[list[bytes]]:
    rest = iter(keys)
    while group := list(islice(rest, GROUP_KEYS)):
        yield group
