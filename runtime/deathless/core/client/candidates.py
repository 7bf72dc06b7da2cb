"""Whom a client dials next, and when: the replicas it knows, in turn, with capped pauses between rounds; pure.

A round asks each candidate once, without pause; after a round without success the next begins after a pause that
doubles up to BACKOFF_MAX_S, with jitter, for ever (I4). It is WAITING_S at least while a replica is at hand that waits
with us and tells who leads as soon as it knows: dials, each with a TLS handshake, would take the processor from those
we wait for. A hint (a replica named the primary) goes first; in a newer epoch than the last hint at once. Two replicas
that contradict each other must not send us to and fro, so a hint of an older epoch says nothing and one of the same
epoch waits for the next turn. Who did not answer, and the primary just lost, are asked after the others: behind the
address of a pod or node that is gone nobody says no. All are asked before anybody is asked again.

Guarantees: bounded dials per second. Does not: dial, know roles. Imports nothing of ours but periods.
"""

from __future__ import annotations

from collections.abc import Callable

from deathless.base.backoff import pause_after
from deathless.core.client.link import BACKOFF_MAX_S, BACKOFF_MIN_S, GREET_MAX_S, GREET_S, WAITING_S


class Candidates:
    """The replicas of one service.

    Args:
        jitter: gives a number in [0, 1) per call.
    """

    __slots__ = (
        "_addresses",
        "_anew",
        "_asked",
        "_hint",
        "_hint_used",
        "_jitter",
        "_learned",
        "_refusals",
        "_rounds",
        "_shunned",
        "_timeouts",
        "_tried",
        "_turn",
        "dial_at",
    )

    def __init__(self, jitter: Callable[[], float]) -> None:
        self.dial_at = 0.0  # not before
        self._jitter = jitter
        self._addresses: tuple[str, ...] = ()
        self._learned = ""  # the primary's address, as a replica told us
        self._hint = ""  # to be dialed next
        self._hint_used = (0, "")  # (epoch, address) of the last hint, so that it is followed once
        self._turn = 0  # index of the next candidate
        self._tried = 0  # dials of this round
        self._asked: set[str] = set()  # dialed since all were, however many rounds were cut short
        self._anew = False  # this round ends with the replica at hand, dialed anew
        self._shunned: set[str] = set()  # lost, or without an answer; they greeted nobody since
        self._rounds = 0  # rounds without success
        self._timeouts = 0  # dials since the last WELCOME that nobody answered
        self._refusals: dict[str, tuple[str, str]] = {}  # address -> (code, text) of definite refusals

    @property
    def known(self) -> tuple[str, ...]:
        """All addresses: those given, and the one a replica named."""
        learned = self._learned
        return self._addresses if not learned or learned in self._addresses else (*self._addresses, learned)

    @property
    def greet_limit_s(self) -> float:
        """How long a dialed replica has until its WELCOME; doubles while nobody answers."""
        return pause_after(self._timeouts, first_s=GREET_S, most_s=GREET_MAX_S)

    def found(self, addresses: tuple[str, ...], now: float) -> None:
        """The addresses were looked up; that there are none is no news: a folder can't be read at times."""
        if not addresses or addresses == self._addresses:
            return
        if not self._addresses:
            # Clients of one service begin at different replicas, so one frozen replica does not delay them all.
            self._turn = int(self._jitter() * len(addresses))
        self._addresses = addresses
        self._refusals = {a: r for a, r in self._refusals.items() if a in addresses}
        self._shunned.intersection_update(addresses)
        self.dial_at = now  # there is somebody new to ask

    def next(self, at_hand: str, *, suspected: bool) -> str:
        """Give the address to dial now; empty: only the replica at hand is known.

        Args:
            at_hand: address of the replica we have a connection to; empty: none.
            suspected: that connection is silent.
        """
        self._tried += 1
        if self._hint:
            hint, self._hint = self._hint, ""
            return hint
        known = self.known
        in_turn = [known[(self._turn + step) % len(known)] for step in range(len(known))]
        others = [address for address in in_turn if address != at_hand]
        # The replica at hand is dialed anew now and then: its old connection may be what is broken.
        self._anew = bool(at_hand) and self._rounds % (2 if suspected else 4) == 1
        if self._anew and self._tried > len(others):
            return at_hand
        if not others:
            return ""
        if self._asked.issuperset(others):
            self._asked.clear()
        address = min(others, key=lambda one: (one in self._asked, one in self._shunned))
        self._turn = known.index(address) + 1
        self._asked.add(address)
        return address

    def missed(self, now: float, *, at_hand: bool, waiting: bool = False, whole_round: bool = False) -> bool:
        """A candidate brought nothing: the next one at once, or after a pause when all had their turn.

        Args:
            now: monotonic seconds.
            at_hand: there is a replica that is not dialed in this round.
            waiting: and it waits with us for a primary.
            whole_round: this ends the round, whoever had no turn yet.

        Returns: True when the round is over (look the addresses up again).
        """
        self.dial_at = now
        if not whole_round and self._tried < len(self.known) - at_hand + self._anew:
            return False
        self._tried = 0
        self._anew = False
        self._rounds += 1
        pause = pause_after(self._rounds, first_s=BACKOFF_MIN_S, most_s=BACKOFF_MAX_S)
        if waiting:
            pause = max(pause, WAITING_S)
        self.dial_at = now + pause * (0.5 + 0.5 * self._jitter())
        return True

    def begin(self, now: float) -> None:
        """Something changed: ask everybody, from now on."""
        self._tried = 0
        self.dial_at = now

    def succeeded(self) -> None:
        """A primary served us: pauses begin small again."""
        self._rounds = 0
        self._asked.clear()

    def hint(self, epoch: int, address: str, now: float) -> bool:
        """A replica named the primary of `epoch`. True: a newer one than any hint before, dial it now."""
        last_epoch = self._hint_used[0]
        if epoch < last_epoch or (epoch, address) == self._hint_used:
            return False
        self._learned = self._hint = address
        self._hint_used = (epoch, address)
        if epoch == last_epoch:
            return False
        self.dial_at = now
        return True

    def drop_hint(self) -> None:
        """The replica it named is being dialed, or another one serves us."""
        self._hint = ""

    def welcomed(self, address: str) -> None:
        """A replica greeted us."""
        self._refusals.pop(address, None)
        self._shunned.discard(address)
        self._timeouts = 0

    def unanswered(self, address: str) -> None:
        """A dialed replica did not greet us in time."""
        self._timeouts += 1
        self._shunned.add(address)

    def lost(self, address: str) -> None:
        """The replica at hand is not at hand any more."""
        self._shunned.add(address)

    def leads(self, address: str) -> None:
        """This one is the primary: what replicas told of an earlier one is of no use."""
        self._learned = address

    def refused(self, address: str, code: str, text: str) -> None:
        """A replica refuses us for good."""
        self._refusals[address] = (code, text)

    def refusal(self) -> tuple[str, str] | None:
        """(code, text) when every replica refuses us for good; None: some may yet serve us."""
        known = self.known
        if not known or any(address not in self._refusals for address in known):
            return None
        return self._refusals[known[0]]
