"""Where the logs of services that talk to each other are cut, so that all of them can go on from there; pure.

Each service has a log of its own, and nobody can read all of them at one moment. What was read says of each place
behind a frame how far the service had sent to each other one, what it had forgotten since because the other one has it,
and what it had received. A cut, one place of each log, is consistent if for each pair of services A and B

    B has received nothing that A sends only behind its place       or A would send it again at a position that B has
    A has forgotten nothing that B receives only behind its place   or nobody would have it any more

What A has sent up to its place and B has not received up to its own is then in A's outbox, and is sent on.

    begin with the last places (or those asked for) -> lower whoever has too much of another one -> until nobody has

Lowering one service never makes a pair consistent by raising another, and a place that was left belongs to no
consistent cut below the ones that are asked for. So the result is the latest one: each other consistent cut has no
place of any service behind it.

Positions begin anew when an operator adopts a peer. Places before that are compared with nothing and are not used.

Guarantees: the latest consistent cut, or TooShort. Does not: read logs (shell.operate.forking does). Imports codec and
base.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards


class Known(msgspec.Struct, array_like=True, frozen=True):
    """Who a service takes another one to be."""

    session: int
    service_id: bytes
    incarnation: int


class ForkPlace(msgspec.Struct, array_like=True, frozen=True):
    """A place behind a frame, and how far the service had got there with each other one; absent: not at all."""

    lsn: int
    chain: bytes
    sent: dict[str, int]  # the last position that was given to a message
    forgotten: dict[str, int]  # the last position whose message is not kept any more: the other one has confirmed it
    received: dict[str, int]  # the last position that was taken in
    knows: dict[str, Known]


class TooShort(Exception):
    """What was read of a service's log begins behind every place of it that fits the others."""

    def __init__(self, service: str, why: str) -> None:
        super().__init__(why)
        self.service = service
        self.why = why


def decide(
    logs: Mapping[str, Sequence[ForkPlace]],
    through: Mapping[str, int],
    safeguards: Safeguards = ALL_SAFEGUARDS,
) -> dict[str, ForkPlace]:
    """Give the place at which each log is cut.

    Args:
        logs: the places that were read of each service, ascending, at least one.
        through: lsn behind which a service's place must not lie; absent: it may be the last one.
        safeguards: all on, but in tests.

    Raises: TooShort.
    """
    first = {name: _first_usable(places) for name, places in logs.items()}
    at = {name: _last_through(name, places, first[name], through.get(name)) for name, places in logs.items()}

    def lower(name: str, why: str) -> None:
        at[name] -= 1
        if at[name] < first[name]:
            raise TooShort(name, why)

    lowered = safeguards.fork_cut_consistent
    while lowered:
        lowered = False
        for sender in logs:
            for receiver in logs:
                if receiver == sender:
                    continue
                while _received(logs[receiver][at[receiver]], sender) > logs[sender][at[sender]].sent.get(receiver, 0):
                    lower(receiver, f"it has received more of {sender} than {sender} had sent up to its place")
                    lowered = True
                received = _received(logs[receiver][at[receiver]], sender)
                while logs[sender][at[sender]].forgotten.get(receiver, 0) > received:
                    lower(sender, f"it has forgotten more than {receiver} had received up to its place")
                    lowered = True
    return {name: logs[name][index] for name, index in at.items()}


def _received(place: ForkPlace, sender: str) -> int:
    return place.received.get(sender, 0)


def _last_through(name: str, places: Sequence[ForkPlace], first: int, through: int | None) -> int:
    for index in range(len(places) - 1, first - 1, -1):
        if through is None or places[index].lsn <= through:
            return index
    raise TooShort(name, f"its log can be used behind lsn {places[first].lsn} only")


def _first_usable(places: Sequence[ForkPlace]) -> int:
    """Give the index of the first place behind which no positions begin anew."""
    for index in range(len(places) - 1, 0, -1):
        before, place = places[index - 1], places[index]
        if any(before.sent[name] > place.sent.get(name, 0) for name in before.sent):
            return index
        if any(name in place.knows and place.knows[name] != known for name, known in before.knows.items()):
            return index
    return 0
