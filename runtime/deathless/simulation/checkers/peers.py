"""Did services that talk lose, double, reorder or invent anything between them (I1, I2, I3, I5, I7)?

    wire         whatever left a sender, a deposed one too, stands in the replay of its log at that position
    pairs        what the log says was sent is what the other's log says was got: each once, in order
    told         who tells a peer what it took in tells the connection that it welcomed last, and no other
    answers      each request has one reply, and no reply is without its request
    activities   each that began is in the log; what must run at most once did; what gave a result did run

Input: bytes as they left, and what crash-free replays of the logs in fresh processes give. Imports nothing of ours but
the history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from deathless.simulation.checkers.history import Violation


@dataclass(frozen=True, slots=True)
class Told:
    """A peer was told something on a connection.

    Attributes:
        reader: one life of who told it; what a later life knows is another table.
        session: the peer's.
        connection: on which it was told.
        welcomed: it was told from where to send; False: what was taken in.
        at_us: for the message.
    """

    reader: str
    session: int
    connection: str
    welcomed: bool
    at_us: int


@dataclass(frozen=True, slots=True)
class Began:
    """An attempt of an activity began: (invocation, operation) and number, and what was asked for."""

    activity: tuple[int, int]
    attempt: int
    at_most_once: bool


def check_wire(
    sender: str, left: Iterable[tuple[str, int, bytes]], meant: Mapping[str, Sequence[bytes]]
) -> list[Violation]:
    """Compare (receiver, position, message) as they left with what the replay gives; positions count from 1."""
    texts: dict[str, None] = {}
    for receiver, position, message in left:
        replayed = meant.get(receiver, ())
        if position > len(replayed) or replayed[position - 1] != message:
            texts[f"{sender} sent to {receiver} at {position} what its log does not have there"] = None
    return [Violation(checker="wire", text=text) for text in texts]


def check_pair(sender: str, receiver: str, sent: Sequence[bytes], got: Sequence[bytes]) -> list[Violation]:
    """Compare what one log says was sent with what the other says was got."""
    if list(sent) == list(got):
        return []
    at = next((i for i, (a, b) in enumerate(zip(sent, got, strict=False)) if a != b), None)
    where = f"first at {at + 1}" if at is not None else "at the end"
    text = f"{sender} sent {len(sent)} messages to {receiver}, which got {len(got)}: another {where}"
    return [Violation(checker="pairs", text=text)]


def check_told(told: Iterable[Told]) -> list[Violation]:
    """Judge on which connections peers were told what was taken in, in the order in which they were."""
    welcomed: dict[tuple[str, int], str] = {}
    violations: list[Violation] = []
    for each in told:
        place = (each.reader, each.session)
        if each.welcomed:
            welcomed[place] = each.connection
        elif welcomed.get(place) != each.connection:
            text = f"{each.reader} told {each.connection} at {each.at_us} us, and had welcomed {welcomed.get(place)}"
            violations.append(Violation(checker="told", text=text))
    return violations


def check_answers(
    who: str, asked: Iterable[Hashable], answered: Iterable[tuple[Hashable, bytes]], given_up: Iterable[Hashable] = ()
) -> list[Violation]:
    """Judge the replies of one service to another, by request; those that the caller gave up may have none."""
    requests = Counter(asked)
    replies: dict[Hashable, list[bytes]] = {}
    for request, reply in answered:
        replies.setdefault(request, []).append(reply)
    free = set(given_up)
    texts = [f"{who} was asked {request} {count} times" for request, count in requests.items() if count > 1]
    texts += [f"{who} answered {request} {len(given)} times" for request, given in replies.items() if len(given) > 1]
    texts += [f"{who} answered {request}, which nobody asked" for request in replies if request not in requests]
    texts += [f"{who} never answered {each}" for each in requests if each not in replies and each not in free]
    return [Violation(checker="answers", text=text) for text in texts]


def check_activities(
    began: Iterable[Began], logged: Iterable[tuple[tuple[int, int], int]], gave: Iterable[tuple[tuple[int, int], int]]
) -> list[Violation]:
    """Judge activities.

    Args:
        began: every beginning of every replica.
        logged: (activity, attempt) that turns of the log asked for.
        gave: those that the log has a result of.
    """
    counts = Counter((each.activity, each.attempt) for each in began)
    once = {each.activity for each in began if each.at_most_once}
    known = set(logged)
    times = Counter(activity for activity, _ in counts.elements())
    texts = [f"{one} attempt {number} began, and the log never asks for it" for one, number in counts.keys() - known]
    texts += [f"{one} must run at most once, and began {times[one]} times" for one in once if times[one] > 1]
    texts += [f"{one} attempt {number} gave a result and never began" for one, number in set(gave) - counts.keys()]
    return [Violation(checker="activities", text=text) for text in sorted(texts)]
