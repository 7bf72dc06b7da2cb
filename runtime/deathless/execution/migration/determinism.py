"""Is a migration a function, and can it be undone: looks at what it gives, twice.

    differences(first, second, state)   what two migrations of the same state gave differently
    check_determinism(...)              migrates again, keys in descending order, and compares
    check_way_back(...)                 up and down again: is each state what it was

A function that keeps something between two keys gives another state in another order. One that goes by the order of a
set, by addresses or by hashes gives another one in another process: whoever calls this may have the first result from
a process with another hash seed.

Guarantees: what is found is told with the first key, the field and both values. Does not: find what happens to be
equal both times. Imports base and codec.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from deathless.base.limits import Limits
from deathless.codec.map_entries import show_key
from deathless.execution.author.changes import Gap
from deathless.execution.author.service import Service
from deathless.execution.author.signature import map_types
from deathless.execution.declared.unknown_fields import decode_plain
from deathless.execution.interface.interface import Interface
from deathless.execution.interface.misfit import Misfit, Tally
from deathless.execution.migration.items import NO_ITEMS, Items
from deathless.execution.migration.state import Migrator, parted
from deathless.execution.values.failure import bounded
from deathless.execution.values.ordered import encode_any

PRINT_BYTES: Final = 8
SHOWN_CHARS: Final = 60
_PURE: Final = "a migration is a function of its arguments: no order of a set, nothing kept between keys, no clock"


def differences(first: Mapping[bytes, bytes], second: Mapping[bytes, bytes], state: type) -> list[Misfit]:
    """Compare what two migrations gave for the same keys.

    Args:
        first: entries of one.
        second: of the other; keys that the first has and this one has not differ as well.
        state: the new type, for its name.
    """
    tally = Tally()
    for entry in first.keys() | second.keys():
        one, other = first.get(entry), second.get(entry)
        if one == other:
            continue
        subject, shown = state.__name__, "it is there once of two times"
        if one is not None and other is not None:
            field, before, after = first_difference(one, other)
            shown = f"{shown_value(before)} and {shown_value(after)}"
            subject += f".{field}" if field else ""
        what = f"key {bounded(show_key(entry), 100)}, field {subject}: {shown}"
        tally.add("MigrationNotDeterministic", subject, what, _PURE, bounded(show_key(entry), 100))
    return sorted(tally.misfits(len(first)), key=lambda each: each.subject)


def first_difference(one: bytes, other: bytes) -> tuple[str, object, object]:
    """Give the field in which two encoded values differ, and both values of it."""
    before, after = decode_plain(one), decode_plain(other)
    field = ""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in (*before, *(name for name in after if name not in before)):
            if encode_any(before.get(name)) != encode_any(after.get(name)) or (name in before) != (name in after):
                field, before, after = str(name), before.get(name), after.get(name)
                break
    return field, before, after


def shown_value(value: object) -> str:
    """Give a value for people, as JSON where it has one, cut to SHOWN_CHARS."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, msgspec.MsgspecError):
        text = repr(value)
    return bounded(text, SHOWN_CHARS)


def prints_of(
    migrator: Migrator, state: Mapping[bytes, bytes], items: Mapping[bytes, Items], keys: Iterable[bytes]
) -> Iterator[bytes]:
    """Migrate keys one by one, and give for each PRINT_BYTES that stand for all of its new entries.

    So two processes compare what they gave without keeping it.
    """
    for key in keys:
        print_ = hashlib.blake2b(digest_size=PRINT_BYTES)
        for entry, value in sorted(migrator.group([(key, state[key])], items).items()):
            print_.update(b"%d,%d:" % (len(entry), len(value)) + entry + value)
        yield print_.digest()


def sample_of(keys: list[bytes], count: int) -> list[bytes]:
    """Give up to so many keys, evenly from all; 0: all."""
    if not count or count >= len(keys):
        return keys
    return [keys[at * len(keys) // count] for at in range(count)]


def check_determinism(
    state: Mapping[bytes, bytes],
    migrated: Mapping[bytes, bytes],
    service: Service,
    before: Interface | None,
    *,
    time_us: int,
    limits: Limits | None = None,
    shards: int = 1,
    upgrade: bytes = b"",
    sample: int = 0,
) -> list[Misfit]:
    """Migrate again, in descending order of keys, and compare.

    Args:
        state: entries of the old state.
        migrated: what a first migration of all of them gave, here or in another process.
        service: as for `migrate_state`, as are the others.
        before: likewise.
        time_us: likewise.
        limits: likewise.
        shards: likewise.
        upgrade: likewise.
        sample: how many keys; 0: all.
    """
    keys, items, _ = parted(state)
    chosen = sample_of(sorted(keys, reverse=True), sample)
    migrator = Migrator(service, before, time_us=time_us, limits=limits or Limits(), shards=shards, upgrade=upgrade)
    found = Tally()
    for key in chosen:
        again = migrator.group([(key, state[key])], items)
        first = _of_same(migrated, again)
        if again != first:
            found.extend(differences(first, again, service.state))
    return found.misfits(len(chosen))


def _of_same(migrated: Mapping[bytes, bytes], again: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Give what the first migration had of the entries that the second one gave."""
    return {entry: migrated[entry] for entry in again if entry in migrated}


def check_way_back(
    state: Mapping[bytes, bytes],
    service: Service,
    before: Interface | None,
    *,
    time_us: int,
    limits: Limits | None = None,
    sample: int = 0,
) -> list[Misfit]:
    """Migrate up and down again: what comes back otherwise is lost where the upgrade is undone.

    Args: as for `check_determinism`.

    Returns: fields that come back otherwise, and what can't go up or down; nothing also where there is no way back,
    which a comparison tells.
    """
    limits = limits or Limits()
    up = Migrator(service, before, time_us=time_us, limits=limits)
    back = service.declared.way(service.version, up.version)
    if isinstance(back, Gap) or not back:
        return []
    down = Migrator(service, None, time_us=time_us, limits=limits, target=up.version)
    keys, items, _ = parted(state)
    chosen = sample_of(sorted(keys), sample)
    found = Tally()
    for key in chosen:
        _there_and_back(key, state[key], items.get(key, NO_ITEMS), up, down, found)
    return [*found.misfits(len(chosen)), *up.misfits, *down.misfits]


def _there_and_back(key: bytes, data: bytes, items: Items, up: Migrator, down: Migrator, found: Tally) -> None:
    there = up.migrate(key, data, items)
    again = None if there is None else down.migrate(there.key, there.state, there.items)
    if again is None:
        return
    old = down.hops[-1].new
    first = bounded(show_key(key), 100)
    remedy = "give it back in the way down, or accept that undoing the upgrade loses it"
    for name, one, other in _lost(up, old, data, again.state):
        subject = f"{old.__name__}.{name}"
        what = f"{subject} comes back otherwise: {shown_value(one)} as {shown_value(other)}"
        found.add("DownLoses", subject, what, remedy, first)
    for field in sorted(items.keys() | again.items.keys()):
        if items.get(field, {}) != again.items.get(field, {}):
            subject = f"{old.__name__}.{field}"
            found.add("DownLoses", subject, f"items of {subject} come back otherwise", remedy, first)
    if again.key != key:
        what = f"key {first} comes back as {bounded(show_key(again.key), 100)}"
        found.add("DownLoses", "keys", what, remedy, first)


def _lost(up: Migrator, old: type, before: bytes, after: bytes) -> Iterable[tuple[str, object, object]]:
    """Give the fields, but maps, that an old state and the one that came back have otherwise."""
    one, other = decode_plain(up.canonical(before)), decode_plain(up.canonical(after))
    if not (isinstance(one, dict) and isinstance(other, dict)):
        if one != other:
            yield "state", one, other
        return
    maps = map_types(old)
    for name in (*one, *(name for name in other if name not in one)):
        if name not in maps and encode_any(one.get(name)) != encode_any(other.get(name)):
            yield str(name), one.get(name), other.get(name)
