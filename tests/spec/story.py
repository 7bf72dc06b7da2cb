"""What a town's story was: what anybody outside saw, beside what a replay of the logs in fresh processes gives."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec
from tests.spec.town import Town

from deathless.codec.peer_messages import Target

NOT_ONCE = "not once, or not in order"
TWICE = "something has more effects than were asked for"
STRAY = "a message left that no log sends"
OTHER_ANSWER = "an answer is not the recorded one"
FORGOTTEN = "a message is forgotten that its receiver does not have"
RANG_TWICE = "an at-most-once activity ran twice"


def forgotten(town: Town) -> list[str]:
    """Who forgot a message that its receiver does not have (of those that lead)."""
    found: list[str] = []
    for name, other in (("shop", "bank"), ("bank", "shop")):
        if not {name, other} <= town.houses.keys():
            continue
        sender, receiver = town.houses[name].now, town.houses[other].now
        if not sender.leads or not receiver.leads:
            continue
        peer = receiver.engine.shard.peers.get(Target(name, 0))
        session = receiver.engine.shard.sessions.get(0 if peer is None else peer.session)
        expected = 1 if session is None else session.next_seq
        if sender.engine.shard.outbox.first_position(Target(other, 0)) > expected:
            found.append(f"{name} behind {expected}")
    return found


@dataclass
class Story:
    """What was seen, and what the logs say.

    Attributes:
        books: state of each key of each service, decoded, of a replay of the log in a fresh process.
        replayed: replies of the shop's log to the customer's session, by seq.
        meant: (sender, target, position) -> message, of every message that the logs ever send.
    """

    town: Town
    books: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    replayed: dict[int, bytes] = field(default_factory=dict)
    meant: dict[tuple[str, Target, int], bytes] = field(default_factory=dict)
    differs: list[str] = field(default_factory=list)  # services whose primary holds something else than its log gives

    @property
    def booked(self) -> list[int]:
        """What the bank holds, in its order."""
        booked: list[int] = self.bank("booked")
        return booked

    def cart(self, key: str = "cart") -> dict[str, Any]:
        return self.books["shop"].get(key, {"paid": [], "heard": [], "steps": []})

    @property
    def once(self) -> bool:
        """Has every message between the services, and to ourselves, had its effect once, and in order?"""
        amounts = [arguments["n"] for method, arguments in self.town.customer.calls if method == "pay"]
        heard = [self.cart()["heard"], self.cart("echo")["heard"]]
        asked = [method for method, _ in self.town.customer.calls].count("settle")
        return self.booked == amounts and heard == [amounts, amounts] and self.bank("asked") == asked

    @property
    def answers(self) -> list[set[bytes]]:
        """Every answer that the customer ever got, one set for each call and each result."""
        customer = self.town.customer
        return [*customer.replies.values(), *customer.results.values()]

    @property
    def recorded(self) -> bool:
        """Is each reply the one that the log gives, whoever asks and how often?"""
        replies = self.town.customer.replies
        return all(len(each) == 1 for each in self.answers) and all(
            replies[seq] == {self.replayed.get(seq)} for seq in replies
        )

    def attempts(self, activity: str) -> int:
        """How often it touched the world outside."""
        return [name for name, _ in self.town.begun].count(activity)

    def bank(self, what: str) -> Any:
        return self.books["bank"].get("till", {"booked": [], "asked": 0})[what]

    @property
    def twice(self) -> bool:
        """Has anything more effects than were asked for?"""
        asked = Counter(arguments["n"] for method, arguments in self.town.customer.calls if method == "pay")
        effects = [self.cart()["paid"], self.booked, self.cart()["heard"], self.cart("echo")["heard"]]
        settled = [method for method, _ in self.town.customer.calls].count("settle")
        return any(Counter(each) - asked for each in effects) or self.bank("asked") > settled

    def wrong(self) -> list[str]:
        """All that must never be at the end, by name."""
        settled = "settle" in [method for method, _ in self.town.customer.calls]
        checks = {
            NOT_ONCE: not self.once,
            "a replay gives something else": bool(self.differs),
            "an at-least-once activity did not run": settled and not self.attempts("print_receipt"),
        }
        return [*(name for name, found in checks.items() if found), *self.wrong_so_far()]

    def wrong_so_far(self) -> list[str]:
        """All that must never be, also before the end."""
        checks = {
            TWICE: self.twice,
            STRAY: bool(self.strays()),
            OTHER_ANSWER: not self.recorded,
            FORGOTTEN: bool(forgotten(self.town)),
            RANG_TWICE: self.attempts("ring") > 1,
            "its attempts have different keys": len({k for name, k in self.town.begun if name == "print_receipt"}) > 1,
        }
        return [name for name, found in checks.items() if found]

    def unanswered(self) -> list[int]:
        """Calls whose answer the log gives, and the customer never got."""
        return [seq for seq in sorted(self.replayed) if seq not in self.town.customer.replies]

    def strays(self) -> list[tuple[str, Target, int, bytes]]:
        """Messages that some primary sent and the log of its service does not, byte for byte."""
        return [sent for sent in self.town.wire if self.meant.get(sent[:3]) != sent[3]]


def tell(town: Town) -> Story:
    """Read the logs in fresh processes and put together what was seen."""
    story = Story(town)
    for name, house in town.houses.items():
        shard = house.make_shard()
        for frame in house.frames():
            for result in shard.apply(frame):
                if name == "shop" and result.run.session == town.customer.session:
                    story.replayed |= dict(enumerate(result.replies, result.run.first_seq))
            for target in shard.outbox.targets():
                first = shard.outbox.first_position(target)
                for at, message in enumerate(shard.outbox.messages_from(target, first, 1 << 30), first):
                    story.meant[name, target, at] = message
        state = shard.executor.state()
        story.books[name] = {key.decode(): msgspec.msgpack.decode(value) for key, value in state.items()}
        if house.now.leads and house.now.engine.shard.executor.state() != state:
            story.differs.append(name)
    return story
