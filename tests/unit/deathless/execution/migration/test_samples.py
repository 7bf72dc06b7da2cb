"""Pairs of services that must be caught, and pairs that must pass, go through everything that judges them.

Each sample is compared, its state is migrated forwards, again backwards in order and in a process with another hash
seed, up and down, and its messages are fitted. What is found is exactly what the table says, so that nothing is found
where nothing is wrong.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec
import pytest

from deathless.base.limits import Limits
from deathless.codec.map_entries import encode_item, prefix_of
from deathless.execution.author.changes import Gap
from deathless.execution.author.service import Service
from deathless.execution.interface.comparison import Comparison, compare
from deathless.execution.interface.interface import (
    Interface,
    decode_interface,
    encode_interface,
    interface_from_json,
    interface_of,
)
from deathless.execution.migration.determinism import check_determinism, check_way_back, differences
from deathless.execution.migration.messages import Waiting, fit_messages
from deathless.execution.migration.state import migrate_state
from deathless.shell.service_code.loading import load_service

SAMPLES = Path(__file__).parents[4] / "samples/upgrades"
TIME_US = 1_700_000_000_000_000
pack = msgspec.msgpack.encode
Entries = dict[bytes, bytes]


BALANCES: Mapping[str, object] = MappingProxyType({"alice": {"balance": 5.0}, "bob": {"balance": -2.5}})
NO_ITEMS: Mapping[str, Mapping[str, object]] = MappingProxyType({})
Message = tuple[str, str, object]


ONE_WAY = frozenset({"NoDownMigration"})


class Case(NamedTuple):
    """What a sample begins with, and what is said about it."""

    said: set[str]  # Word:subject, of all misfits
    states: Mapping[str, object] = BALANCES
    items: Mapping[str, Mapping[str, object]] = NO_ITEMS  # of the map `items`
    messages: tuple[Message, ...] = ()  # method, key, arguments
    notes: frozenset[str] = frozenset()
    compatible: bool = False
    after: Mapping[str, object] | None = None  # states behind it


STOCK = {"shelf": {"items": [2, b"c" * 16]}}
ITEMS: Mapping[str, Mapping[str, object]] = {"shelf": {"Pear": 3, "nut": 0}}
DEPOSIT: tuple[Message, ...] = (("deposit", "alice", {"amount": 1.5}),)
CAUGHT: dict[str, Case] = {
    "activity_renamed": Case({"ActivityGone:send"}),
    "argument_of_another_type": Case({"ArgumentTypeChanged:deposit.amount", "ArgumentTypeChanged:deposit"},
                                     messages=DEPOSIT),
    "argument_required": Case({"ArgumentRequired:deposit.currency", "ArgumentTypeChanged:deposit"}, messages=DEPOSIT),
    "arguments_that_fit_both_types": Case({"ArgumentsAmbiguous:deposit"}, messages=DEPOSIT),
    "awaiting_handler_became_plain": Case({"KindChanged:deposit"}),
    "column_of_a_topic_renamed": Case({"TopicChanged:deposits"}, messages=DEPOSIT),
    "default_that_is_left_out_changed": Case({"DefaultChanged:Account.standing"}),
    "enum_loses_a_member": Case({"FieldTypeChanged:Account.kind"}, {"alice": {"balance": 0.0, "kind": "firm"}}),
    "field_of_an_argument_renamed": Case({"ArgumentTypeChanged:deposit.money", "ArgumentTypeChanged:deposit"},
                                         messages=(("deposit", "alice", {"money": {"amount": 10.0}}),)),
    "field_renamed_without_a_migration": Case({"FieldDropped:Account.balance"}),
    "handler_removed": Case({"HandlerGone:bonus"}, messages=(("bonus", "alice", {}),)),
    "handler_renamed": Case({"HandlerGone:bonus"}, messages=(("bonus", "alice", {}),)),
    "map_removed": Case({"MapGone:Stock.items"}, STOCK, ITEMS),
    "migrated_state_too_large": Case({"TooLarge:version 2"}, notes=ONE_WAY),
    "migration_goes_by_the_order_of_a_set": Case({"MigrationNotDeterministic:Account.tags"},
                                                 {"dave": {"balance": 0.0, "tags": " ".join(map(chr, range(97, 123)))}},
                                                 notes=ONE_WAY),
    "migration_keeps_something_between_keys": Case({"MigrationNotDeterministic:Account.number"},
                                                   notes=ONE_WAY),
    "migration_raises_for_one_key": Case({"MigrationRaised:up"}, notes=ONE_WAY),
    "migration_with_a_gap": Case({"MigrationMissing:version 2"}),
    "result_of_another_type": Case({"ResultTypeChanged:deposit"}),
    "schedule_moved": Case({"ScheduleChanged:nightly"}),
    "tagged_class_renamed": Case({"FieldTypeChanged:Account.means"},
                                 {"alice": {"balance": 0.0, "means": {"type": "Card", "number": "1"}}}),
    "two_keys_become_one": Case({"KeysCollide:keys"}, {"Alice": {"balance": 1.0}, "alice": {"balance": 2.0}},
                                notes=ONE_WAY),
    "type_narrowed_for_one_key": Case({"FieldTypeChanged:Account.note"},
                                      {"alice": {"balance": 0.0, "note": "x"}, "bob": {"balance": 0.0, "note": None}},
                                      notes=ONE_WAY),
    "way_down_loses_a_field": Case({"DownLoses:AccountV1.balance"}),
}  # fmt: skip
SAME = BALANCES
PASSING: dict[str, Case] = {
    "activity_with_another_policy_and_body": Case(set(), compatible=True, after=SAME),
    "class_under_another_name": Case(set(), compatible=True, after=SAME),
    "column_of_a_topic_added": Case(set(), compatible=True, after=SAME, messages=DEPOSIT),
    "comments": Case(set(), compatible=True, after=SAME, messages=DEPOSIT),
    "dict_became_a_map": Case(set(), {"shelf": {"items": {"Pear": 3}}}, notes=ONE_WAY),
    "field_dropped_on_purpose": Case(set(), {"alice": {"balance": 1.0, "note": "x"}},
                                     after={"alice": {"balance": 1.0}}),
    "handler_added": Case(set(), compatible=True, after=SAME),
    "handler_renamed_in_a_block": Case(set(), messages=(("bonus", "alice", {}),), notes=frozenset({"Renamed"}),
                                       after=SAME),
    "items_migrated": Case(set(), STOCK, ITEMS, notes=ONE_WAY),
    "key_renamed": Case(set(), {"acct-alice": {"balance": 1.0}, "bob": {"balance": 2.0}}, notes=ONE_WAY,
                        messages=(("deposit", "acct-alice", {"amount": 1.5}),),
                        after={"alice": {"balance": 1.0}, "bob": {"balance": 2.0}}),
    "migrated_both_ways": Case(set(), after={"alice": {"cents": 500}, "bob": {"cents": -250}}),
    "old_arguments_accepted": Case(set(), messages=DEPOSIT, after=SAME),
    "optional_argument_added": Case(set(), compatible=True, messages=DEPOSIT, after=SAME),
    "optional_field_added": Case(set(), compatible=True,
                                 after={"alice": {"balance": 5.0, "note": ""}, "bob": {"balance": -2.5, "note": ""}}),
    "query_added": Case(set(), compatible=True, after=SAME),
    "schedule_added": Case(set(), compatible=True, after=SAME),
    "schedule_moved_on_purpose": Case(set(), notes=frozenset({"ScheduleChanged"}), after=SAME),
    "topic_removed": Case(set(), notes=frozenset({"TopicGone"}), after=SAME, messages=DEPOSIT),
    "three_versions_in_a_chain": Case(set(), notes=ONE_WAY,
                                      after={"alice": {"amount": "5.00"}, "bob": {"amount": "-2.50"}}),
}  # fmt: skip


def stored(case: Case) -> Entries:
    """The entries of a checkpoint."""
    entries = {key.encode(): pack(state) for key, state in case.states.items()}
    for key, items in case.items.items():
        for item, value in items.items():
            entries[prefix_of(key.encode(), "items") + encode_item(item)] = pack(value)
    return entries


def load(kind: str, name: str, which: str) -> Service:
    return load_service(str(SAMPLES / kind / name / f"{which}.py"))


def in_another_process(kind: str, name: str, case: Case, before: Interface, seed: str) -> Entries:
    """Migrate where sets have another order."""
    code = (
        "import sys, msgspec\n"
        "from deathless.execution.interface.interface import decode_interface\n"
        "from deathless.execution.migration.state import migrate_state\n"
        "from deathless.shell.service_code.loading import load_service\n"
        "target, before, state, time_us = msgspec.msgpack.decode(sys.stdin.buffer.read())\n"
        "entries, _ = migrate_state(state, load_service(target), decode_interface(before), time_us=time_us)\n"
        "sys.stdout.buffer.write(msgspec.msgpack.encode(entries))\n"
    )
    target = str(SAMPLES / kind / name / "new.py")
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=pack((target, encode_interface(before), stored(case), TIME_US)),
        env=os.environ | {"PYTHONHASHSEED": seed},
        capture_output=True,
        check=True,
    )
    return msgspec.msgpack.decode(done.stdout, type=dict[bytes, bytes])


def judge(kind: str, name: str, case: Case) -> tuple[set[str], Comparison, Entries]:
    """Everything that is said about a sample: words with subjects, what the types say, and the new state."""
    old = load(kind, name, "old")
    before = decode_interface(encode_interface(interface_of(old, Limits())))
    new = load(kind, name, "new")
    compared = compare(before, interface_of(new, Limits()), new.declared)
    found = list(compared.misfits)
    state = stored(case)
    entries: Entries = {}
    if not isinstance(new.declared.way(before.version), Gap):
        entries, misfits = migrate_state(state, new, before, time_us=TIME_US)
        found += misfits
        if not misfits:
            found += check_determinism(state, entries, new, before, time_us=TIME_US)
            found += check_way_back(state, new, before, time_us=TIME_US)
        if name == "migration_goes_by_the_order_of_a_set":  # the only one that another order of keys does not show
            one, other = (in_another_process(kind, name, case, before, seed) for seed in "12")
            found += differences(one, other, new.state)
        messages = [Waiting("lsn 14", method, key.encode(), pack(given)) for method, key, given in case.messages]
        found += fit_messages(messages, new, before)[1]
    return {f"{each.word}:{each.subject}" for each in found}, compared, entries


@pytest.mark.parametrize("name", CAUGHT)
def test_sample_is_caught_for_what_it_shows(name: str) -> None:
    case = CAUGHT[name]
    said, compared, _ = judge("caught", name, case)
    assert said == case.said
    assert {each.word for each in compared.notes} == case.notes
    assert not compared.compatible or not compared.misfits


@pytest.mark.parametrize("name", PASSING)
def test_sample_passes_with_what_it_leaves(name: str) -> None:
    case = PASSING[name]
    said, compared, entries = judge("passing", name, case)
    assert said == set()
    assert compared.compatible == case.compatible
    assert {each.word for each in compared.notes} == case.notes
    if case.after is not None:
        assert {key.decode(): msgspec.msgpack.decode(value) for key, value in entries.items()} == case.after


def test_every_sample_is_in_the_table() -> None:
    assert sorted(CAUGHT) == sorted(path.name for path in (SAMPLES / "caught").iterdir())
    assert sorted(PASSING) == sorted(path.name for path in (SAMPLES / "passing").iterdir())


def test_an_interface_of_every_sample_comes_back_from_its_bytes() -> None:
    for path in sorted(SAMPLES.glob("*/*/*.py")):
        interface = interface_of(load_service(str(path)), Limits())
        assert decode_interface(encode_interface(interface)) == interface
        assert interface_from_json(msgspec.json.encode(json.loads(msgspec.json.encode(interface)))) == interface


def test_a_dict_that_became_a_map_is_there_item_by_item() -> None:
    _, _, entries = judge("passing", "dict_became_a_map", PASSING["dict_became_a_map"])
    assert msgspec.msgpack.decode(entries[prefix_of(b"shelf", "items") + encode_item("Pear")]) == 3
    assert msgspec.msgpack.decode(entries[b"shelf"])["items"][0] == 1


def test_items_are_migrated_renamed_and_taken_away() -> None:
    _, _, entries = judge("passing", "items_migrated", PASSING["items_migrated"])
    assert {key: msgspec.msgpack.decode(value) for key, value in entries.items() if key != b"shelf"} == {
        prefix_of(b"shelf", "items") + encode_item("pear"): {"count": 3}
    }
    count, chain = msgspec.msgpack.decode(entries[b"shelf"])["items"]
    assert count == 1
    assert len(chain) == 16
    assert chain != b"c" * 16
