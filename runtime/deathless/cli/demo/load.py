"""The counting client of `deathless demo`, and the judge.

Several sessions call without pause, wait for as long as an answer takes, and write down what they sent and what was
answered. The judge then asks the service for its accounts and compares the two: it believes neither.

Guarantees: a call that was answered and is not in its account counts as lost; one that is there twice as doubled;
money that nobody deposited, or that is missing, as not conserved. Does not: break anything (cli.demo.faults does).
"""

from __future__ import annotations

import asyncio
import copy
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from deathless.base.errors import DeathlessError
from deathless.cli.demo.service import Account
from deathless.shell.client.shard_client import Client

SENDERS = 4  # sessions
DEPTH = 4  # calls on their way in each
ACCOUNTS = 24
PAUSE_S = 0.008  # between a caller's calls: the demo is about death, not about speed
TRANSFER_SHARE = 0.4
AMOUNT_MAX = 100


@dataclass(slots=True)
class Ledger:
    """What one session sent and what was answered."""

    sender: str
    sent: Counter[str] = field(default_factory=Counter)  # by account: the last number
    answered: dict[str, set[int]] = field(default_factory=dict)  # by account: numbers
    deposited: int = 0  # by deposits that were answered
    open_deposits: dict[tuple[str, int], int] = field(default_factory=dict)  # sent, not answered: amount
    wrong: list[str] = field(default_factory=list)  # answers that are not the call's, and errors


class Verdict(msgspec.Struct, rename="camel"):
    """What the judge found."""

    sent: int
    answered: int
    applied: int
    lost: int
    doubled: int
    wrong_answers: int
    unanswered: int
    deposited: int
    total: int
    examples: list[str]

    @property
    def conserved(self) -> bool:
        """The accounts hold what was deposited."""
        return self.total == self.deposited

    @property
    def good(self) -> bool:
        """Nothing lost, nothing doubled, every call answered with its own answer, money conserved."""
        return self.conserved and not (self.lost or self.doubled or self.wrong_answers or self.unanswered)

    @property
    def words(self) -> str:
        """The verdict as one sentence."""
        words = (
            f"lost {self.lost:,}, doubled {self.doubled:,}, total {'conserved' if self.conserved else 'NOT conserved'}"
        )
        if self.wrong_answers:
            words += f", {self.wrong_answers:,} wrong answers"
        if self.unanswered:
            words += f", {self.unanswered:,} never answered"
        return words


class Load:
    """Several sessions that call, and what they know.

    Args:
        directory: the shard's folder; replicas are found by it.
        seed: of amounts and accounts.
        answered: called at each good answer with the time, for gauges.
    """

    def __init__(self, service: str, directory: str, *, seed: int, answered: Callable[[float], None]) -> None:
        names = [f"client-{index}" for index in range(SENDERS)]
        self.ledgers = [Ledger(name) for name in names]
        self._clients = [Client(service, [f"dir:{directory}"], name=name) for name in names]
        self._chance = random.Random(seed)  # noqa: S311 - amounts and accounts are no secrets
        self._answered = answered
        self._going = True
        self._callers: list[asyncio.Task[None]] = []

    @property
    def sent(self) -> int:
        """Calls sent."""
        return sum(ledger.sent.total() for ledger in self.ledgers)

    @property
    def answered(self) -> int:
        """Calls answered."""
        return sum(len(numbers) for ledger in self.ledgers for numbers in ledger.answered.values())

    def start(self) -> None:
        """Begin to call."""
        for client, ledger in zip(self._clients, self.ledgers, strict=True):
            client.start()
            self._callers += [asyncio.create_task(self._call_on(client, ledger)) for _ in range(DEPTH)]

    async def finish(self, wait_s: float) -> None:
        """Send nothing more and wait for the answers that are owed."""
        self._going = False
        if self._callers:
            _, late = await asyncio.wait(self._callers, timeout=wait_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*self._callers, return_exceptions=True)

    async def close(self) -> None:
        """Hang up."""
        await self.finish(0.0)
        for client in self._clients:
            await client.close()

    async def judge(self, wait_s: float) -> Verdict:
        """Ask the service for all accounts and compare with what was answered before. Calls may go on meanwhile.

        Raises: DeathlessError when it does not answer.
        """
        # Copies: an answer that comes while we ask may be for a call that an account did not hold when it was asked.
        before = [copy.deepcopy(ledger) for ledger in self.ledgers]
        client = self._clients[0]
        accounts = await asyncio.gather(
            *(client.ask("account", name, {}, timeout=wait_s, result=Account) for name in account_names())
        )
        return judge(before, dict(zip(account_names(), accounts, strict=True)))

    async def _call_on(self, client: Client, ledger: Ledger) -> None:
        while self._going:
            await self._call_once(client, ledger)
            await asyncio.sleep(PAUSE_S)

    async def _call_once(self, client: Client, ledger: Ledger) -> None:
        chance = self._chance
        name, target = chance.sample(account_names(), 2)
        amount = chance.randint(1, AMOUNT_MAX)
        ledger.sent[name] += 1
        number = ledger.sent[name]
        args: dict[str, object] = {"amount": amount, "sender": ledger.sender, "number": number}
        deposit = chance.random() >= TRANSFER_SHARE
        if deposit:
            ledger.open_deposits[name, number] = amount
        try:
            if deposit:
                answer = await client.request("deposit", name, args, timeout=None)
            else:
                named = {**args, "source": name, "target": target}
                answer = await client.request("transfer", name, named, timeout=None)
        except DeathlessError as error:
            ledger.wrong.append(f"{ledger.sender}/{number} on {name}: {error}")
            return
        if answer != number:
            ledger.wrong.append(f"{ledger.sender}/{number} on {name} was answered {answer!r}")
        ledger.answered.setdefault(name, set()).add(number)
        if deposit:
            ledger.deposited += ledger.open_deposits.pop((name, number))
        self._answered(time.monotonic())


def account_names() -> list[str]:
    """Give the accounts' keys."""
    return [f"account-{index:02d}" for index in range(ACCOUNTS)]


def judge(ledgers: list[Ledger], accounts: dict[str, Account]) -> Verdict:
    """Compare what was answered with what the accounts say."""
    examples: list[str] = []
    applied = lost = 0
    deposited = 0
    for ledger in ledgers:
        deposited += ledger.deposited
        for name in ledger.sent:
            seen = applied_numbers(accounts[name], ledger.sender)
            applied += len(seen)
            missing = sorted(ledger.answered.get(name, set()) - seen)
            lost += len(missing)
            examples += [f"lost: {ledger.sender}/{number} on {name}" for number in missing[:3]]
            deposited += sum(
                amount for (at, number), amount in ledger.open_deposits.items() if at == name and number in seen
            )
        examples += ledger.wrong[:3]
    doubled = [f"doubled: {call} on {name}" for name, account in accounts.items() for call in account.again]
    sent = sum(ledger.sent.total() for ledger in ledgers)
    answered = sum(len(numbers) for ledger in ledgers for numbers in ledger.answered.values())
    wrong = sum(len(ledger.wrong) for ledger in ledgers)
    return Verdict(
        sent=sent,
        answered=answered,
        applied=applied,
        lost=lost,
        doubled=len(doubled),
        wrong_answers=wrong,
        unanswered=sent - answered - wrong,
        deposited=deposited,
        total=sum(account.balance for account in accounts.values()),
        examples=[*examples, *doubled[:3]][:10],
    )


def applied_numbers(account: Account, sender: str) -> set[int]:
    """Give the numbers of a sender's calls that an account has seen."""
    ranges = account.seen.get(sender, [])
    return {number for first, last in zip(ranges[::2], ranges[1::2], strict=True) for number in range(first, last + 1)}
