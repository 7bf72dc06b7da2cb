"""The cut at which services are forked: nothing is lost or doubled across it, and there is no later one.

Services that send, take in and forget are drawn at random, and so is how far each log was read. What a fork does with a
cut is then carried out: everything that is kept is sent again, from the position that the receiver asks for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.safeguards import ALL_SAFEGUARDS
from deathless.core.replica.fork_cut import ForkPlace, Known, TooShort, decide

OFF = replace(ALL_SAFEGUARDS, fork_cut_consistent=False)
STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from(("send", "take", "forget"))), max_size=24
)


def place(lsn: int, sent: dict[str, int], forgotten: dict[str, int], received: dict[str, int]) -> ForkPlace:
    return ForkPlace(lsn, bytes(16), sent, forgotten, received, {})


class Talk:
    """Services that talk, and the log of each."""

    def __init__(self, count: int) -> None:
        self.names = [f"s{number}" for number in range(count)]
        self.sent, self.forgotten, self.received = (dict.fromkeys(permutations(self.names, 2), 0) for _ in range(3))
        self.logs = {name: [self.place(name, 0)] for name in self.names}

    def place(self, name: str, lsn: int) -> ForkPlace:
        others = [other for other in self.names if other != name]
        return place(
            lsn,
            {other: self.sent[name, other] for other in others},
            {other: self.forgotten[name, other] for other in others},
            {other: self.received[other, name] for other in others},
        )

    def step(self, sender: str, receiver: str, what: str) -> None:
        pair, doer = (sender, receiver), sender
        if what == "send":
            self.sent[pair] += 1
        elif what == "take":
            doer = receiver
            self.received[pair] = min(self.sent[pair], self.received[pair] + 1)
        else:
            self.forgotten[pair] = self.received[pair]
        self.logs[doer].append(self.place(doer, len(self.logs[doer])))


@st.composite
def talks(draw: st.DrawFn) -> dict[str, list[ForkPlace]]:
    """Logs of services that talked, each read up to some place."""
    talk = Talk(draw(st.integers(2, 4)))
    for sender, receiver, what in draw(STEPS):
        if sender != receiver and max(sender, receiver) < len(talk.names):
            talk.step(talk.names[sender], talk.names[receiver], what)
    return {name: places[: draw(st.integers(1, len(places)))] for name, places in talk.logs.items()}


NEW = 0  # a message that a forked service sends first of all, behind all that it had sent up to its cut


def heard(cut: dict[str, ForkPlace], sender: str, receiver: str) -> list[int]:
    """The messages that the receiver takes in before and behind the cut, by position: of each sender the next alone."""
    first, sent = cut[sender].forgotten.get(receiver, 0) + 1, cut[sender].sent.get(receiver, 0)
    taken = list(range(1, cut[receiver].received.get(sender, 0) + 1))
    for position in range(first, sent + 2):
        if position == len(taken) + 1:
            taken.append(position if position <= sent else NEW)
    return taken


def is_consistent(cut: dict[str, ForkPlace]) -> bool:
    """Does each receiver hear each message of each sender, the new one too, exactly once?"""
    return all(
        heard(cut, sender, receiver) == [*range(1, cut[sender].sent.get(receiver, 0) + 1), NEW]
        for sender, receiver in permutations(cut, 2)
    )


@given(talks())
def test_the_cut_loses_and_doubles_nothing_and_is_the_latest(logs: dict[str, list[ForkPlace]]) -> None:
    cut = decide(logs, {})
    assert is_consistent(cut)
    for places in product(*logs.values()):
        other = dict(zip(logs, places, strict=True))
        if is_consistent(other):
            assert all(other[name].lsn <= cut[name].lsn for name in logs)


@given(talks(), st.data())
def test_no_service_is_cut_behind_what_was_asked_for(logs: dict[str, list[ForkPlace]], data: st.DataObject) -> None:
    through = {name: data.draw(st.integers(0, len(places))) for name, places in logs.items()}
    cut = decide(logs, through)
    assert is_consistent(cut)
    assert all(cut[name].lsn <= lsn for name, lsn in through.items())


@dataclass
class Lagging:
    """Two logs of which one was read before the other, and what would come of the last places of both."""

    logs: dict[str, list[ForkPlace]]
    heard: list[int]


SENT_LATER = Lagging(
    {
        "a": [place(0, {}, {}, {}), place(1, {"b": 1}, {}, {})],
        "b": [place(0, {}, {}, {}), place(1, {}, {}, {"a": 1}), place(2, {}, {}, {"a": 2})],
    },
    [1, 2],  # the new message is at position 2, and taken for one that came already
)
FORGOTTEN_LATER = Lagging(
    {
        "a": [place(0, {}, {}, {}), place(1, {"b": 1}, {}, {}), place(2, {"b": 1}, {"b": 1}, {})],
        "b": [place(0, {}, {}, {})],
    },
    [],  # nobody has the first message any more
)


@pytest.mark.parametrize("lagging", [SENT_LATER, FORGOTTEN_LATER], ids=["sent later", "forgotten later"])
def test_without_comparing_the_logs_messages_are_lost_across_the_cut(lagging: Lagging) -> None:
    assert is_consistent(decide(lagging.logs, {}))
    cut = decide(lagging.logs, {}, OFF)
    assert not is_consistent(cut)
    assert heard(cut, "a", "b") == lagging.heard


def test_places_before_positions_began_anew_are_not_used() -> None:
    old, new = Known(3, b"x" * 16, 1), Known(9, b"y" * 16, 2)
    before = ForkPlace(1, bytes(16), {"b": 5}, {}, {}, {"b": old})
    after = ForkPlace(2, bytes(16), {"b": 0}, {}, {}, {"b": new})
    logs = {"a": [before, after], "b": [place(0, {}, {}, {})]}
    assert decide(logs, {})["a"] == after
    with pytest.raises(TooShort) as error:
        decide(logs, {"a": 1})
    assert error.value.service == "a"


def test_log_that_begins_behind_the_cut_is_named() -> None:
    logs = {"a": [place(4, {"b": 2}, {"b": 2}, {})], "b": [place(0, {}, {}, {}), place(1, {}, {}, {"a": 1})]}
    with pytest.raises(TooShort, match="it has forgotten more than b had received"):
        decide(logs, {})
