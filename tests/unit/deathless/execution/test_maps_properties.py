"""Whatever turns do to a map, it holds what a dictionary would, through roll-backs, restarts and waiting."""

from datetime import timedelta
from itertools import islice
from typing import Literal

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.encoded import chunk_reader
from tests.unit.deathless.execution.messaging_bench import Hub, log_of, replay

from deathless.base.ids import ChainHash, Digest, Epoch, Fingerprint, Incarnation, Lsn
from deathless.base.times import Times
from deathless.codec.checkpoint import decode, encode
from deathless.codec.map_entries import encode_item, prefix_of
from deathless.codec.snapshot import Snapshot
from deathless.execution.author.service import Service
from deathless.execution.maps.map import Map
from deathless.execution.turn.context import Context

Kind = Literal[
    "set", "add", "delete", "pop", "popitem", "clear", "first", "above", "scan", "drop_scanned", "has", "len", "turn"
]
KINDS: tuple[Kind, ...] = (
    "set", "set", "add", "add", "delete", "pop", "popitem", "clear", "first", "above", "scan", "drop_scanned", "has",
    "len", "turn", "turn",
)  # fmt: skip


class Op(msgspec.Struct, array_like=True, frozen=True):
    kind: Kind
    key: int
    number: int = 0


class Item(msgspec.Struct):
    numbers: list[int] = []


class State(msgspec.Struct):
    items: Map[int, Item] = msgspec.field(default_factory=Map)
    turns: int = 0


class Stop(Exception):
    pass


Items = dict[int, list[int]]


def act(items: Map[int, Item], op: Op) -> list[object]:
    """Do one thing to a map; give what was seen, as it was then: later ones may change it in place."""
    key = op.key
    match op.kind:
        case "set":
            items[key] = Item([op.number])
        case "add":
            items.setdefault(key, Item()).numbers.append(op.number)
        case "delete":
            if key in items:
                del items[key]
        case "pop":
            return [[*items.pop(key, Item()).numbers]]
        case "popitem":
            return [items.popitem()[0]] if items else []
        case "clear":
            items.clear()
        case "first":
            return [*islice(items, 1)]
        case "above":
            return [*islice(items.keys_above(key), 2)]
        case "scan":
            return [[key, [*item.numbers]] for key, item in items.items()]
        case "drop_scanned":
            for each in items:
                if each % 2:
                    del items[each]
        case "has":
            return [key in items]
        case _:
            return [len(items)]
    return []


def model(items: Items, op: Op) -> list[object]:
    """Do the same to a dictionary."""
    key, order = op.key, sorted(items)
    match op.kind:
        case "set":
            items[key] = [op.number]
        case "add":
            items[key] = [*items.get(key, []), op.number]
        case "delete":
            items.pop(key, None)
        case "pop":
            return [[*items.pop(key, [])]]
        case "popitem":
            for first in order[:1]:
                del items[first]
            return [*order[:1]]
        case "clear":
            items.clear()
        case "first":
            return [*order[:1]]
        case "above":
            return [*[each for each in order if each > key][:2]]
        case "scan":
            return [[each, [*items[each]]] for each in order]
        case "drop_scanned":
            for each in order:
                if each % 2:
                    del items[each]
        case "has":
            return [key in items]
        case _:
            return [len(items)]
    return []


svc = Service("svc", state=State)


@svc.handler
def run(state: State, ctx: Context, ops: list[Op], fail: bool) -> list[list[object]]:
    seen = [act(state.items, op) for op in ops]
    state.turns += 1
    if fail:
        raise Stop
    return seen


@svc.handler
async def walk(state: State, ctx: Context, ops: list[Op], fail: bool) -> list[list[object]]:
    """As `run`; each op "turn" ends a turn, and what the last one did is lost if it fails."""
    items, seen = state.items, []
    kept = items.setdefault(0, Item())
    for op in ops:
        if op.kind == "turn":
            await ctx.timer(after=timedelta(seconds=1))
            kept.numbers.append(-1)
        seen.append(act(items, op))
    if fail:
        raise Stop
    return seen


def model_walk(items: Items, ops: list[Op]) -> tuple[list[list[object]], Items]:
    """Give what is seen, and what stands behind the last turn but one."""
    kept = items.setdefault(0, [])
    before: Items = {}
    seen: list[list[object]] = []
    for op in ops:
        if op.kind == "turn":
            before = {key: list(numbers) for key, numbers in items.items()}
            kept.append(-1)
        if op.kind == "add" and op.key in items:  # in place, as the handler does
            items[op.key].append(op.number)
            seen.append([])
        else:
            seen.append(model(items, op))
    return [[*each] for each in msgspec.msgpack.decode(msgspec.msgpack.encode(seen))], before


OPS = st.lists(st.builds(Op, st.sampled_from(KINDS), st.integers(-2, 4), st.integers(0, 9)), max_size=8)
STEPS = st.lists(st.tuples(st.sampled_from(["run", "walk"]), OPS, st.booleans(), st.booleans()), max_size=8)


def held(hub: Hub) -> Items:
    prefix = prefix_of(b"a", "items")
    entries = hub.executor.state()
    found = {key: msgspec.msgpack.decode(value) for key, value in entries.items() if key.startswith(prefix)}
    if b"a" in entries:
        assert msgspec.msgpack.decode(entries[b"a"])["items"][0] == len(found)
    return {n: found[prefix + encode_item(n)]["numbers"] for n in range(-2, 5) if prefix + encode_item(n) in found}


@settings(deadline=None)
@given(STEPS)
def test_map_holds_what_a_dictionary_would(steps: list[tuple[str, list[Op], bool, bool]]) -> None:
    hub = Hub(svc)
    items: Items = {}
    for method, ops, fail, restart in steps:
        if restart:
            hub.restart()
        if method == "run":
            after = {key: list(numbers) for key, numbers in items.items()}
            seen: object = [model(after, op) for op in ops]
            if fail:
                assert hub.fail("run", ops=ops, fail=True).type == "Stop"
            else:
                items = after
                assert hub.call("run", ops=ops, fail=False) == msgspec.msgpack.decode(msgspec.msgpack.encode(seen))
        else:
            items = walked(hub, items, ops, fail=fail, restart=restart)
        assert held(hub) == items
    whole, single = replay(svc, log_of(hub)), replay(svc, log_of(hub), restart=lambda at: at % 2 == 0)
    assert whole == single
    assert whole.state == hub.executor.state()


def walked(hub: Hub, items: Items, ops: list[Op], *, fail: bool, restart: bool) -> Items:
    """Run the handler that waits; gives what there should be then."""
    if not any(op.kind == "turn" for op in ops):
        return items
    after = {key: list(numbers) for key, numbers in items.items()}
    seen, before = model_walk(after, ops)
    invocation = hub.begin("walk", ops=ops, fail=fail)
    while hub.executor.due().first_us:
        if restart:
            hub.restart()
        hub.tick()
    if fail:
        assert hub.failure(invocation) == "DL3014 Stop"
        return before
    assert hub.result(invocation) == seen
    return after


@given(st.dictionaries(st.integers(-(2**63), 2**63 - 1), st.lists(st.integers(0, 9), max_size=3)))
def test_map_goes_through_a_checkpoint_file(items: Items) -> None:
    hub, other = Hub(svc), Hub(svc)
    hub.call("run", ops=[Op("set", key, 1) for key in items], fail=False)
    written = Snapshot(
        service="svc",
        service_id=bytes(16),
        incarnation=Incarnation(1),
        epoch=Epoch(1),
        lsn=Lsn(1),
        chain=ChainHash(bytes(16)),
        digest=Digest(bytes(16)),
        times=Times.at(1),
        fingerprint=Fingerprint(bytes(16)),
        state=hub.executor.state(),
    )
    read = decode(chunk_reader(list(encode(written))))
    assert read.state_digest == written.state_digest
    other.executor.restore(read.state)
    assert other.executor.state() == hub.executor.state()
    scan = [Op("scan", 0)]
    assert other.call("run", ops=scan, fail=False) == hub.call("run", ops=scan, fail=False)
