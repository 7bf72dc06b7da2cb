"""Services that call and fork each other: what their handlers do, and what clients ask of them.

A client asks for a `visit` with a plan: a tree of further visits, each to a key of some service, some of them forks.
Every visit notes its tag in the state of its key, so the states of all services together say which visits were made,
once or twice or never. What a visit gives is how many visits it waited for, itself included: the plan says how many.

Why tags are paths: a visit's tag is its parent's and its number there, so that what was never asked for shows too.

Guarantees: the same seed gives the same plans; a plan goes from keys of one depth to keys of the next, so that no
visit waits for a key that it holds itself. Does not: know clusters. May import execution and below, workload.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

import msgspec

from deathless.codec.messages import Kind, encode
from deathless.execution.context import Context
from deathless.execution.service import Service
from deathless.simulation.workload import Request

NAMES: Final = ("ant", "bee", "cat", "dog", "elk")
DEPTH_MAX: Final = 4
KEYS: Final = 2  # of each service at each depth
VISITS_MAX: Final = 12  # in one plan
NOTHING: Final = timedelta(0)


class Shape(StrEnum):
    """Who sends to whom."""

    CHAIN = "chain"  # each to the next, the last to nobody
    RING = "ring"  # each to the next, the last to the first, and to itself now and then
    FAN_OUT = "fan-out"  # the first to all others


class Hop(msgspec.Struct, frozen=True):
    """One further visit. `how`: call, fork, or plain (a call of a handler that does not wait)."""

    service: str
    key: str
    how: str
    then: tuple[Hop, ...] = ()
    rests: bool = False  # it waits for a timer first
    acts: bool = False  # it runs an activity first


class Cell(msgspec.Struct):
    """State of a key."""

    number: int = 0  # sum of what its visits gave
    tags: list[str] = []  # visits, in order


def make_service(name: str) -> Service:
    """Make one of the services; they differ in their names alone."""
    service = Service(name, state=Cell)

    @service.activity
    def stamp(tag: str) -> str:  # noqa: ARG001  the simulated worker gives the activity's name
        return "stamp"

    @service.handler
    async def visit(cell: Cell, ctx: Context, tag: str, plan: tuple[Hop, ...], rests: bool, acts: bool) -> int:
        """Note the tag, make the further visits, and give how many were waited for."""
        cell.tags.append(tag)
        if rests:
            await ctx.timer(after=NOTHING)
        if acts:
            cell.tags.append(f"{tag}!{await ctx.run(stamp, tag)}")
        waits = []
        for number, hop in enumerate(plan):
            arguments: dict[str, object] = {"tag": f"{tag}.{number}"}
            if hop.how == "plain":
                waits.append(ctx.call(hop.service, hop.key, "mark", arguments, result=int))
                continue
            arguments |= {"plan": hop.then, "rests": hop.rests, "acts": hop.acts}
            if hop.how == "fork":
                ctx.fork(hop.service, hop.key, "visit", arguments)
            else:
                waits.append(ctx.call(hop.service, hop.key, "visit", arguments, result=int))
        total = 1
        for wait in waits:
            total += await wait
        cell.number += total
        return total

    @service.handler
    def mark(cell: Cell, _ctx: Context, tag: str) -> int:
        """Note the tag."""
        cell.tags.append(tag)
        cell.number += 1
        return 1

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


def draw_visits(chance: random.Random, services: int, *, span_us: int, requests: int = 8) -> VisitProfile:
    """Draw how the visits of one run are."""
    count = max(2, int(requests * (0.5 + chance.random())))
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


def _draw_plan(
    chance: random.Random, profile: VisitProfile, service: str, depth: int, left: list[int]
) -> tuple[Hop, ...]:
    hops: list[Hop] = []
    if depth >= DEPTH_MAX:
        return ()
    wide = 3 if profile.shape is Shape.FAN_OUT and depth == 0 else 2
    targets = _next(chance, profile, service)
    for _ in range(chance.randrange(wide + 1)):
        if not targets or left[0] <= 0:
            break
        left[0] -= 1
        target = chance.choice(targets)
        key = f"d{depth + 1}-{chance.randrange(KEYS)}"
        drawn = chance.random()
        if drawn < profile.plain_share / 2:
            hops.append(Hop(target, key, "plain"))
            continue
        how = "fork" if chance.random() < profile.fork_share else "call"
        then = _draw_plan(chance, profile, target, depth + 1, left)
        rests, acts = chance.random() < profile.rest_share, chance.random() < profile.act_share
        hops.append(Hop(target, key, how, then, rests, acts))
    return tuple(hops)


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
            "tag": self.request.tag, "plan": root.then, "rests": root.rests, "acts": root.acts,
        }  # fmt: skip
        return encode(
            Kind.CALL,
            method=b"visit",
            key=root.key.encode(),
            idempotency_key=self.request.idempotency_key,
            args=msgspec.msgpack.encode(arguments),
        )


def _waited(hop: Hop) -> int:
    return 1 + sum(_waited(each) for each in hop.then if each.how != "fork")


def _tags(hop: Hop, tag: str) -> Iterator[str]:
    yield tag
    if hop.acts:
        yield f"{tag}!stamp"
    for number, each in enumerate(hop.then):
        yield from _tags(each, f"{tag}.{number}")


def draw_client(chance: random.Random, profile: VisitProfile, service: str, client: str) -> list[Visit]:
    """Draw everything one client of one service will ask for."""
    visits: list[Visit] = []
    for number in range(profile.requests):
        tag = f"{client}/{number}"
        then = _draw_plan(chance, profile, service, 0, [VISITS_MAX])
        key = f"d0-{chance.randrange(KEYS)}"
        rests, acts = chance.random() < profile.rest_share, chance.random() < profile.act_share
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


def cells_of(state: Mapping[bytes, bytes]) -> dict[str, Cell]:
    """Decode the state of every key."""
    return {key.decode(): msgspec.msgpack.decode(data, type=Cell) for key, data in sorted(state.items())}


def applied_tags(states: Sequence[Mapping[bytes, bytes]]) -> list[str]:
    """Give the tags in the states of all services."""
    return [tag for state in states for cell in cells_of(state).values() for tag in cell.tags]
