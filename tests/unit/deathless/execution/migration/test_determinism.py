"""Migrating twice, and up and down: what differs is told by key and field."""

from __future__ import annotations

import msgspec

from deathless import Migration, Service, Struct
from deathless.base.limits import Limits
from deathless.execution.migration.determinism import (
    check_determinism,
    check_way_back,
    differences,
    prints_of,
    sample_of,
)
from deathless.execution.migration.state import Migrator, migrate_state

pack = msgspec.msgpack.encode


class V1(Struct):
    n: float = 0.0


class V2(Struct):
    n: int = 0
    at: int = 0


STATE = {b"%d" % n: pack(V1(n + 0.5)) for n in range(9)}


def service(*, counts: bool) -> Service:
    made = Service("s", state=V2, version=2)
    seen: list[str] = []

    @made.migrate(from_=1)
    def up(old: V1, m: Migration) -> V2:
        seen.append(m.key)
        return V2(int(old.n), len(seen) if counts else 0)

    @made.migrate(from_=2, to=1)
    def down(old: V2, m: Migration) -> V1:
        return V1(old.n)

    return made


def test_a_function_gives_the_same_twice() -> None:
    made = service(counts=False)
    entries, _ = migrate_state(STATE, made, None, time_us=1)
    assert check_determinism(STATE, entries, made, None, time_us=1) == []


def test_what_it_keeps_between_keys_is_seen_with_key_field_and_values() -> None:
    made = service(counts=True)
    entries, _ = migrate_state(STATE, made, None, time_us=1)
    [found] = check_determinism(STATE, entries, made, None, time_us=1)
    assert (found.subject, found.count, found.first) == ("V2.at", 9, "8")
    assert found.what == "key 8, field V2.at: 9 and 10"
    [sampled] = check_determinism(STATE, entries, made, None, time_us=1, sample=3)
    assert (sampled.count, sampled.of) == (3, 3)


def test_prints_differ_where_states_do() -> None:
    made = service(counts=True)

    def prints() -> list[bytes]:
        migrator = Migrator(made, None, time_us=1, limits=Limits())
        return list(prints_of(migrator, STATE, {}, sorted(STATE)))

    first, second = prints(), prints()
    assert (len(first), {len(each) for each in first}) == (9, {8})
    assert all(one != other for one, other in zip(first, second, strict=True))


def test_what_comes_back_otherwise_is_told_with_both_values() -> None:
    [found] = check_way_back(STATE, service(counts=False), None, time_us=1)
    assert (found.word, found.subject, found.count, found.of) == ("DownLoses", "V1.n", 9, 9)
    assert found.what == "V1.n comes back otherwise: 0.5 as 0.0"


def test_without_a_way_back_nothing_is_looked_at() -> None:
    made = Service("s", state=V2, version=2)

    @made.migrate(from_=1)
    def up(old: V1, m: Migration) -> V2:
        return V2()

    assert check_way_back(STATE, made, None, time_us=1) == []


def test_an_entry_that_is_there_once_differs() -> None:
    [found] = differences({b"a": pack(V2())}, {}, V2)
    assert found.what == "key a, field V2: it is there once of two times"


def test_a_sample_is_taken_evenly() -> None:
    keys = [b"%d" % n for n in range(10)]
    assert sample_of(keys, 3) == [b"0", b"3", b"6"]
    assert sample_of(keys, 0) == sample_of(keys, 99) == keys
