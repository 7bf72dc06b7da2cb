"""Services that call and fork each other: what their handlers do, and what clients ask of them.

A client asks for a `visit` with a plan: a tree of further visits, each to a key of some service, some of them forks.
Every visit notes its tag in the state of its key, so the states of all services together say which visits were made,
once or twice or never. What a visit gives is how many visits it waited for, itself included: the plan says how many.

Why tags are paths: a visit's tag is its parent's and its number there, so that what was never asked for shows too.

    calm    what has no burst: a few visits at a time, nothing is ever full
    dense   bursts of forks and calls, long timers, padding that fills windows and outboxes, errors that are caught,
            activities whose workers crash, activities that must run at most once, in every shape

Guarantees: the same seed gives the same plans; a plan goes from keys of one depth to keys of the next, so that no
visit waits for a key that it holds itself. Does not: know clusters. May import execution and below, workload.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from itertools import count, islice
from typing import Final

import msgspec

from deathless.base.errors import CallFailed, Invalid, OutcomeUnknown
from deathless.base.shards import Sharding
from deathless.codec.map_entries import PREFIX, take_apart
from deathless.codec.messages import Kind, encode
from deathless.execution.author.service import Service
from deathless.execution.maps.map import Map, decode_map
from deathless.execution.turn.context import Context
from deathless.simulation.workload.workload import Request

NAMES: Final = ("ant", "bee", "cat", "dog", "elk")
ONE_SHARD: Final = Sharding()
DEPTH_MAX: Final = 4
KEYS: Final = 2  # of each service at each depth
VISITS_MAX: Final = 12  # in one plan, those of a burst counted as one
BURST_MAX: Final = 12  # visits that one hop asks for at once
PAD_MAX: Final = 1500  # bytes that are sent along for nothing
DENSE_SHARE: Final = 0.7  # of the seeds
ACTIVITIES: Final = ("stamp", "shaky", "once")
RESTS_US: Final = (1, 1_000, 60_000, 700_000)
REFUSAL_CODE: Final = "LAB02"


class Shape(StrEnum):
    """Who sends to whom."""

    CHAIN = "chain"  # each to the next, the last to nobody
    RING = "ring"  # each to the next, the last to the first, and to itself now and then
    FAN_OUT = "fan-out"  # the first to all others
    FAN_IN = "fan-in"  # all others to the first
    MESH = "mesh"  # each to each, so that requests go both ways at once


class Hop(msgspec.Struct, frozen=True):
    """One further visit.

    `how`: call, fork, plain (a call of a handler that does not wait), toss (a fork to such a one), or fail (a call of
    one that refuses).
    """

    service: str
    key: str
    how: str
    then: tuple[Hop, ...] = ()
    rests: int = 0  # microseconds that it waits for first; 0: it does not
    acts: str = ""  # activity that it runs first
    times: int = 1  # so many of them at once
    pad: int = 0  # bytes sent along

    def tags(self, tag: str, number: int) -> Iterator[str]:
        """Tags of these visits, asked for as the `number`th hop of `tag`."""
        if self.times == 1:
            yield f"{tag}.{number}"
        else:
            yield from (f"{tag}.{number}x{index}" for index in range(self.times))


class RefusedError(Invalid):
    """What a visit that fails gives."""

    code = REFUSAL_CODE


class Cell(msgspec.Struct):
    """State of a key."""

    number: int = 0  # sum of what its visits gave
    tags: list[str] = []  # visits, in order
    marks: Map[str, int] = msgspec.field(default_factory=Map)  # how often each is among them


def note(cell: Cell, tag: str) -> None:
    """Note a visit, in the state and in its map."""
    cell.tags.append(tag)
    cell.marks[tag] = cell.marks.get(tag, 0) + 1


def make_service(name: str) -> Service:
    """Make one of the services; they differ in their names alone.

    What their activities do is the simulated worker's: `stamp` gives its name, `shaky` fails now and then, because its
    worker crashed, and is tried again, `once` must run at most once.
    """
    service = Service(name, state=Cell)

    @service.activity
    def stamp(tag: str) -> str:
        return f"stamp {tag}"

    @service.activity(first_delay=0.01, factor=1.0)
    def shaky(tag: str) -> str:
        return f"shaky {tag}"

    @service.activity(at_most_once=True)
    def once(tag: str) -> str:
        return f"once {tag}"

    activities = {"stamp": stamp, "shaky": shaky, "once": once}

    @service.handler
    async def visit(
        cell: Cell,
        ctx: Context,
        tag: str,
        plan: tuple[Hop, ...],
        rests: int,
        acts: str,
        pad: str,  # noqa: ARG001  it makes the message longer
    ) -> int:
        """Note the tag, make the further visits, and give how many were waited for."""
        note(cell, tag)
        if rests:
            await ctx.timer(after=timedelta(microseconds=rests))
        if acts:
            try:
                await ctx.run(activities[acts], tag)
            except OutcomeUnknown:
                assert acts == "once", "any other is run until it succeeds"
            note(cell, f"{tag}!{acts}")
        waits = []
        for number, hop in enumerate(plan):
            for each in hop.tags(tag, number):
                arguments: dict[str, object] = {"tag": each, "pad": "." * hop.pad}
                further = {"plan": hop.then, "rests": hop.rests, "acts": hop.acts}
                match hop.how:
                    case "toss":
                        ctx.fork(hop.service, hop.key, "mark", arguments)
                    case "fork":
                        ctx.fork(hop.service, hop.key, "visit", arguments | further)
                    case "plain":
                        waits.append(ctx.call(hop.service, hop.key, "mark", arguments, result=int))
                    case "fail":
                        waits.append(ctx.call(hop.service, hop.key, "refuse", arguments, result=int))
                    case _:
                        waits.append(ctx.call(hop.service, hop.key, "visit", arguments | further, result=int))
        total = 1
        for wait in waits:
            try:
                total += await wait
            except CallFailed as failure:
                if failure.failure_code != REFUSAL_CODE:
                    raise
                total += 1
        cell.number += total
        return total

    @service.handler
    def mark(cell: Cell, _ctx: Context, tag: str, pad: str) -> int:  # noqa: ARG001  it makes the message longer
        """Note the tag."""
        note(cell, tag)
        cell.number += 1
        return 1

    @service.handler
    def refuse(cell: Cell, _ctx: Context, tag: str, pad: str) -> int:  # noqa: ARG001  it makes the message longer
        """Note the tag, and fail: the note is rolled back."""
        note(cell, tag)
        raise RefusedError(f"{tag} is refused")

    return service


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitProfile:
    """What one run's visits are like; drawn per seed."""

    names: tuple[str, ...]
    shape: Shape
    requests: int  # per client
    window: int
    fork_share: float
    plain_share: float
    rest_share: float
    act_share: float
    pause_max_us: int
    dense: bool = False


def draw_visits(chance: random.Random, services: int, *, span_us: int, requests: int = 8) -> VisitProfile:
    """Draw how the visits of one run are."""
    count = max(2, int(requests * (0.5 + chance.random())))
    dense = chance.random() < DENSE_SHARE
    return VisitProfile(
        names=NAMES[:services],
        shape=chance.choice(tuple(Shape)),
        requests=count,
        window=chance.choice((1, 2, 8)),
        fork_share=chance.choice((0.1, 0.5)),
        plain_share=chance.choice((0.1, 0.5)),
        rest_share=chance.choice((0.0, 0.2)),
        act_share=chance.choice((0.0, 0.2)),
        pause_max_us=max(1, 2 * span_us // count),
        dense=dense,
    )


def _next(chance: random.Random, profile: VisitProfile, service: str) -> list[str]:
    """Whom a visit at `service` may go on to."""
    names = profile.names
    at = names.index(service)
    match profile.shape:
        case Shape.CHAIN:
            return [*names[at + 1 : at + 2], *([service] if chance.random() < 0.1 else [])]
        case Shape.RING:
            return [names[(at + 1) % len(names)], service]
        case Shape.FAN_OUT:
            return list(names[1:]) if at == 0 else [*([names[0]] if chance.random() < 0.2 else [])]
        case Shape.FAN_IN:
            return [names[0]] if at else [*([chance.choice(names)] if chance.random() < 0.2 else [])]
        case Shape.MESH:
            return list(names)


def _draw_plan(
    chance: random.Random, profile: VisitProfile, service: str, depth: int, left: list[int]
) -> tuple[Hop, ...]:
    hops: list[Hop] = []
    if depth >= DEPTH_MAX:
        return ()
    wide = 3 if profile.shape in (Shape.FAN_OUT, Shape.MESH) and depth == 0 else 2
    targets = _next(chance, profile, service)
    for _ in range(chance.randrange(wide + 1)):
        if not targets or left[0] <= 0:
            break
        left[0] -= 1
        hops.append(_draw_hop(chance, profile, chance.choice(targets), depth + 1, left))
    return tuple(hops)


def _draw_hop(chance: random.Random, profile: VisitProfile, target: str, depth: int, left: list[int]) -> Hop:
    key = f"d{depth}-{chance.randrange(KEYS)}"
    dense = profile.dense
    times = chance.randrange(2, BURST_MAX + 1) if dense and chance.random() < 0.3 else 1
    pad = chance.randrange(PAD_MAX) if dense and chance.random() < 0.2 else 0
    drawn = chance.random()
    if drawn < profile.plain_share / 2:
        how = chance.choice(("plain", "plain", "toss", "fail")) if dense else "plain"
        return Hop(target, key, how, times=times, pad=pad)
    how = "fork" if chance.random() < profile.fork_share else "call"
    if times > 1:  # what each of a burst goes on to would be too much
        return Hop(target, key, "toss" if how == "fork" else "plain", times=times, pad=pad)
    then = _draw_plan(chance, profile, target, depth, left)
    rests, acts = _draw_pauses(chance, profile)
    return Hop(target, key, how, then, rests, acts, pad=pad)


def _draw_pauses(chance: random.Random, profile: VisitProfile) -> tuple[int, str]:
    """What a visit waits for first: a timer, an activity."""
    rests = chance.choice(RESTS_US if profile.dense else RESTS_US[:1]) if chance.random() < profile.rest_share else 0
    acts = chance.choice(ACTIVITIES if profile.dense else ACTIVITIES[:1]) if chance.random() < profile.act_share else ""
    return rests, acts


@dataclass(frozen=True, slots=True)
class Visit:
    """What one client asks of one service."""

    request: Request
    root: Hop

    @property
    def expected(self) -> int:
        """What the visit gives: visits that were waited for."""
        return _waited(self.root)

    def tags(self) -> Iterator[str]:
        """Every tag that the visit leaves, in all services."""
        yield from _tags(self.root, self.request.tag)

    def encode(self) -> bytes:
        """Give the CALL message."""
        root = self.root
        arguments: Mapping[str, object] = {
            "tag": self.request.tag, "plan": root.then, "rests": root.rests, "acts": root.acts, "pad": "." * root.pad,
        }  # fmt: skip
        return encode(
            Kind.CALL,
            method=b"visit",
            key=root.key.encode(),
            idempotency_key=self.request.idempotency_key,
            args=msgspec.msgpack.encode(arguments),
        )


def _waited(hop: Hop) -> int:
    return 1 + sum(each.times * _waited(each) for each in hop.then if each.how not in ("fork", "toss"))


def _tags(hop: Hop, tag: str) -> Iterator[str]:
    yield tag
    if hop.acts:
        yield f"{tag}!{hop.acts}"
    for number, each in enumerate(hop.then):
        if each.how != "fail":
            for further in each.tags(tag, number):
                yield from _tags(each, further)


def draw_client(
    chance: random.Random, profile: VisitProfile, service: str, client: str, sharding: Sharding = ONE_SHARD
) -> list[Visit]:
    """Draw everything one client of one service, or of one shard of it, will ask for."""
    visits: list[Visit] = []
    for number in range(profile.requests):
        tag = f"{client}/{number}"
        then = _draw_plan(chance, profile, service, 0, [VISITS_MAX])
        key = _key_of(sharding, chance.randrange(KEYS))
        rests, acts = _draw_pauses(chance, profile)
        request = Request(
            model="visit",
            action="visit",
            keys=(key,),
            argument=None,
            tag=tag,
            idempotency_key=f"key-{tag}".encode() if chance.random() < 0.3 else b"",
            pause_us=chance.randrange(profile.pause_max_us),
        )
        visits.append(Visit(request, Hop(service, key, "call", then, rests, acts)))
    return visits


def _key_of(sharding: Sharding, number: int) -> str:
    """Give one of the keys that a client of this shard begins with."""
    keys = (f"d0-{each}" for each in count())
    return next(islice((key for key in keys if sharding.owns(key.encode())), number, None))


def cells_of(state: Mapping[bytes, bytes]) -> dict[str, Cell]:
    """Decode the state of every key."""
    return {
        key.decode(): msgspec.msgpack.decode(data, type=Cell, dec_hook=decode_map)
        for key, data in sorted(state.items())
        if not key.startswith(PREFIX)
    }


def torn_maps(state: Mapping[bytes, bytes]) -> list[str]:
    """Give the keys whose map does not hold what stands in their list."""
    marks: dict[str, Counter[str]] = {}
    for entry, data in state.items():
        if entry.startswith(PREFIX):
            key, _, tag, _ = take_apart(entry)
            marks.setdefault(key.decode(), Counter())[str(tag)] = msgspec.msgpack.decode(data, type=int)
    cells = cells_of(state)
    return [
        key
        for key in sorted({*cells, *marks})
        if key not in cells
        or marks.get(key, Counter()) != Counter(cells[key].tags)
        or len(cells[key].marks) != len(set(cells[key].tags))
    ]


def applied_tags(states: Sequence[Mapping[bytes, bytes]]) -> list[str]:
    """Give the tags in the states of all services."""
    return [tag for state in states for cell in cells_of(state).values() for tag in cell.tags]
