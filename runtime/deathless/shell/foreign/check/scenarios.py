"""The scenarios of a check, in their order, and what each of them finds.

    first run       first start, calls, calls to itself, two checkpoints behind each other, kill -9
    killed          the log again from the first checkpoint, killed in the middle: what it sent is a beginning of that
    replay          the log again from the first checkpoint, cut otherwise: the same messages, then BecomingPrimary (15)
    checkpoint      the log again from a checkpoint in its middle: the same messages, then BecomingPrimary (15)
    upgrade         UpgradeTakeCheckpoint (10) behind the log, then more calls
    upgrade test    UpgradeService (12) before the log
    disconnected    both connections are closed in the middle of the log: the program ends

Why it exists: what an author gets wrong shows only when a replica dies, which is the worst time. Each fault that is
known of such programs shows here, in seconds, with the message that it shows at.

The first four depend on each other: a fault that one of them finds ends the check.

Guarantees: one seed gives one sequence of calls, records and kills; no process is left. A finding is about the program
alone. Does not: find a state outside the checkpoint that no message depends on, unless `states` are compared. Imports
base and this folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Final

from deathless.protocols.ambrosia.errors import ProtocolViolated
from deathless.protocols.ambrosia.life import Cause
from deathless.protocols.ambrosia.messages import SELF, Kind, Rpc
from deathless.shell.foreign.application import ApplicationSettings
from deathless.shell.foreign.check.comparing import Item, Parting, find_parting
from deathless.shell.foreign.check.plan import CALLER, CallSpec, Record, batches, cut_again, rpcs_of
from deathless.shell.foreign.check.program import Failed, Program, Saved
from deathless.shell.foreign.check.report import Finding, Report

INITIAL_LSN: Final = 1
SELF_CALLS_MAX: Final = 400
"""So many messages that it sends to itself are logged; a program that calls itself for ever is not run for ever."""
SELF_CALLS_AT_ONCE: Final = 40
ROUNDS_MAX: Final = 12
LOOK_S: Final = 0.05
HELD_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is checked.

    Attributes:
        settings: how the program is started.
        calls: that it gets.
        seed: of everything that is drawn.
        states: compare the states in checkpoints too.
        upgrades: try what an upgrade does.
        end_s: within which it ends when its connections do.
    """

    settings: ApplicationSettings
    calls: tuple[CallSpec, ...]
    seed: int
    states: bool = False
    upgrades: bool = True
    end_s: float = 5.0


@dataclass(slots=True)
class FirstRun:
    """What the first run left."""

    saved: list[Saved] = field(default_factory=list)  # by lsn; the first is that of the first start
    end: Saved | None = None
    initial: bytes = b""
    log: list[Rpc] = field(default_factory=list)  # behind INITIAL
    sent: dict[str, list[Item]] = field(default_factory=dict)

    @property
    def last_lsn(self) -> int:
        """Of the last message."""
        return INITIAL_LSN + len(self.log)


async def check(plan: Plan, told: Callable[[str], None] = lambda _: None) -> Report:
    """Run all scenarios.

    Args:
        plan: what is checked.
        told: hears which scenario begins.

    Raises:
        ApplicationNotStarted: the program can't be run at all.
    """
    return await Check(plan, told).run()


class Check:
    """One check.

    Args:
        plan: see `check`.
        told: as above.
    """

    def __init__(self, plan: Plan, told: Callable[[str], None]) -> None:
        self.report = Report(seed=plan.seed)
        self.first = FirstRun()
        self._plan = plan
        self._told = told
        self._program: Program | None = None

    async def run(self) -> Report:
        """Run all scenarios."""
        for name, run in (
            ("first run", self._first_run),
            ("killed", self._killed),
            ("replay", self._replay),
            ("checkpoint", self._from_checkpoint),
        ):
            await self._scenario(name, run)
            if self.report.findings:
                self.report.notes.append(f"what is behind {name!r} was not run: it would find the same again")
                return self.report
        if self._plan.upgrades:
            await self._scenario("upgrade", self._upgrade)
            await self._scenario("upgrade test", self._upgrade_test)
        await self._scenario("disconnected", self._disconnected)
        return self.report

    async def _scenario(self, name: str, run: Callable[[random.Random], Awaitable[None]]) -> None:
        self._told(name)
        self.report.scenarios.append(name)
        try:
            await run(random.Random(f"{self._plan.seed} {name}"))  # noqa: S311  a seed gives it again
        except Failed as failed:
            self.report.findings.append(describe_end(name, failed))

    @contextlib.asynccontextmanager
    async def _started(self, purpose: str) -> AsyncIterator[Program]:
        program = Program(replace(self._plan.settings, purpose=purpose))
        try:
            await program.start()
            yield program
        finally:
            await program.end()

    # ------------------------------------------------------------ first run

    async def _first_run(self, chance: random.Random) -> None:
        first = self.first
        async with self._started("check") as program:
            first.saved.append(await program.first_start())
            first.initial = program.initial or b""
            await program.deliver_initial(INITIAL_LSN, first.initial)
            plan = batches(self._plan.calls, chance)
            marks = {len(plan) // 3, 2 * len(plan) // 3}
            number, left = 1, SELF_CALLS_MAX
            for index, batch in enumerate(plan):
                selves = program.take_inputs(min(SELF_CALLS_AT_ONCE, left))
                left -= len(selves)
                rpcs = [*rpcs_of(batch, first=number), *selves]
                number += len(batch)
                await self._log(program, rpcs)
                if index in marks:
                    first.saved.append(await self._two_checkpoints(program))
            for _ in range(ROUNDS_MAX):
                saved = await program.checkpoint()
                selves = program.take_inputs(min(SELF_CALLS_AT_ONCE, left))
                left -= len(selves)
                if not selves:
                    break
                await self._log(program, selves)
            else:
                saved = await program.checkpoint()
            await program.kill()
            first.end = saved
            first.sent = program.sent.by_target
            self._note(program)

    async def _log(self, program: Program, rpcs: list[Rpc]) -> None:
        self.first.log += rpcs
        await program.deliver(Record(self.first.last_lsn, tuple(rpcs)))

    async def _two_checkpoints(self, program: Program) -> Saved:
        """Take one, and another at once: what comes between them was emitted too late."""
        saved = await program.checkpoint()
        again = await program.checkpoint()
        before = saved.emitted
        for target, count in again.emitted.items():
            late = program.sent.by_target.get(target, [])[before.get(target, 0) : count]
            if late and not self._found("flush"):
                self._find(
                    "flush",
                    "first run",
                    f"{len(late)} messages to {named(target)} came behind a checkpoint, though all that they depend on "
                    "was delivered before it: whoever loads that checkpoint never sends them",
                    "send everything that was emitted before you write the Checkpoint message",
                    Parting(target, before.get(target, 0) + 1, late[0].method, "before the checkpoint", "behind it"),
                )
        if self._plan.states and again.state != saved.state:
            self._find(
                "state",
                "first run",
                f"two checkpoints with no message between them differ: {differ(saved.state, again.state)}",
                _STATES,
            )
        return again

    def _note(self, program: Program) -> None:
        report, sent = self.report, program.sent
        report.calls, report.outputs = len(self.first.log), sent.count
        for refused in sent.refused[:1]:
            self._find(
                "refused",
                "first run",
                f"{len(sent.refused)} messages go nowhere: {refused.reason}",
                "send less in one message (DEATHLESS_MESSAGE_BYTES_MAX says how much), or to fewer services",
                Parting(refused.target, refused.position, refused.item.method, "", ""),
            )
        asked = {rpc.sequence for rpc in self.first.log if rpc.kind is Kind.ASYNC and rpc.name == CALLER}
        answered = [item.sequence for item in sent.by_target.get(CALLER, []) if item.kind in _RETURNS]
        wrong = [sequence for sequence in answered if sequence not in asked or answered.count(sequence) > 1]
        if wrong:
            self._find(
                "answer",
                "first run",
                f"call {wrong[0]} was answered {answered.count(wrong[0])} times, and asked "
                f"{'once' if wrong[0] in asked else 'never'}",
                "answer each awaited call once, with the sequence number that came with it",
                Parting(CALLER, 0, 0, "", ""),
            )
        if asked - set(answered):
            report.notes.append(f"{len(asked - set(answered))} of {len(asked)} awaited calls were not answered")
        if not sent.count:
            report.notes.append(
                "it sent no message, so there was little to compare: check it with calls that make it send some, or "
                "with --states"
            )
        unanswered = sorted(
            {target for target, items in sent.by_target.items() for item in items if item.kind is Kind.ASYNC}
            - {SELF, CALLER}
        )
        if unanswered:
            report.notes.append(f"its awaited calls to {', '.join(unanswered)} got no answer: a check has no peers")

    # ------------------------------------------------------------ the log again

    async def _killed(self, chance: random.Random) -> None:
        first = self.first
        async with self._started("replay") as program:
            await program.load(first.saved[0])
            await self._deliver(program, first.saved[0], chance)
            whole = sum(len(items) for items in first.sent.values())
            if whole:
                # Part of the way: where it dies exactly is the machine's to choose.
                await program.emits(chance.randint(1, max(1, whole // 2)), LOOK_S)
            await program.kill()
            self._compare("killed", program, first.saved[0], prefix=True)

    async def _replay(self, chance: random.Random) -> None:
        first, saved = self.first, self.first.saved[0]
        async with self._started("replay") as program:
            await program.load(saved)
            program.hold(True)
            await self._deliver(program, saved, chance)
            await asyncio.sleep(HELD_S)
            program.hold(False)
            await self._compare_at_end("replay", program, saved)
            await self._go_on(program, first.last_lsn)

    async def _from_checkpoint(self, chance: random.Random) -> None:
        first = self.first
        for saved in first.saved[1:]:
            async with self._started("replay") as program:
                await program.load(saved)
                await self._deliver(program, saved, chance)
                await self._compare_at_end("checkpoint", program, saved)
                await self._go_on(program, first.last_lsn)
            if self.report.findings:
                return

    async def _upgrade(self, chance: random.Random) -> None:
        saved = self.first.saved[-1]
        async with self._started("check") as program:
            await program.load(saved)
            await self._deliver(program, saved, chance)
            await program.upgrade()
            await self._go_on(program, self.first.last_lsn, leads=True)

    async def _upgrade_test(self, chance: random.Random) -> None:
        saved = self.first.saved[0]
        async with self._started("rehearsal") as program:
            await program.load(saved)
            await program.test_upgrade()
            await self._deliver(program, saved, chance)
            await program.has_read_all(LOOK_S)

    async def _disconnected(self, chance: random.Random) -> None:
        saved = self.first.saved[0]
        async with self._started("replay") as program:
            await program.load(saved)
            await self._deliver(program, saved, chance)
            if not await program.ends_by_itself(self._plan.end_s):
                self._find(
                    "disconnected",
                    "disconnected",
                    f"its connections were closed, and {self._plan.end_s:g} s later it still runs",
                    "end the process when either connection ends: its coordinator is gone, and another one leads",
                )

    async def _deliver(self, program: Program, saved: Saved, chance: random.Random) -> None:
        """Deliver what the log has behind a checkpoint."""
        if saved.lsn < INITIAL_LSN:
            await program.deliver_initial(INITIAL_LSN, self.first.initial)
        for record in cut_again(self.first.log, saved.lsn, INITIAL_LSN + 1, chance):
            await program.deliver(record)

    async def _go_on(self, program: Program, lsn: int, *, leads: bool = False) -> None:
        """Have it lead, and give it some calls more."""
        if not leads:
            await program.lead()
        calls = rpcs_of(self._plan.calls[:10], first=10**6)
        await program.deliver(Record(lsn + len(calls), tuple(calls)))
        await program.checkpoint()

    async def _compare_at_end(self, scenario: str, program: Program, saved: Saved) -> None:
        end = await program.checkpoint()
        self._compare(scenario, program, saved)
        first = self.first.end
        assert first is not None
        if self._plan.states and not self.report.findings and end.state != first.state:
            self._find(
                "state",
                scenario,
                f"the state behind the same log differs: {differ(first.state, end.state)}",
                _STATES,
            )

    def _compare(self, scenario: str, program: Program, saved: Saved, *, prefix: bool = False) -> None:
        parting = find_parting(self.first.sent, program.sent.by_target, saved.emitted, prefix=prefix)
        if parting is None or self._found("flush"):
            return
        whence = "the first checkpoint" if saved.lsn < INITIAL_LSN else f"the checkpoint behind message {saved.lsn}"
        change = (
            "sent fewer messages" if parting.fewer else "sent more messages" if parting.more else "sent another message"
        )
        self._find(
            "checkpoint" if saved.lsn >= INITIAL_LSN else "fewer" if parting.fewer else "replay",
            scenario,
            f"started from {whence}, with the same log, it {change} to {named(parting.target)} at position "
            f"{parting.position}",
            _CHECKPOINT if saved.lsn >= INITIAL_LSN else _FEWER if parting.fewer or parting.more else _REPLAY,
            parting,
        )

    def _found(self, rule: str) -> bool:
        return any(found.rule == rule for found in self.report.findings)

    def _find(self, rule: str, scenario: str, what: str, remedy: str, at: Parting | None = None) -> None:
        if self._found(rule):
            return  # one message more of the same kind says nothing more
        self.report.findings.append(
            Finding(
                rule=rule,
                scenario=scenario,
                what=what,
                remedy=remedy,
                target=at.target if at else "",
                position=at.position if at else 0,
                method=at.method if at else None,
                expected=at.expected if at else "",
                got=at.got if at else "",
            )
        )


def describe_end(scenario: str, failed: Failed) -> Finding:
    """Say why a program ended, or was ended, in plain words."""
    death = failed.death
    error = death.error
    what = error.message if error is not None else death.cause.value
    remedy = error.advice if error is not None else ""
    if isinstance(error, ProtocolViolated):
        remedy = next((text for part, text in _OF_MESSAGES.items() if part in what), remedy)
    return Finding(
        rule=_RULES.get(death.cause, "ended"),
        scenario=scenario,
        what=f"{what}; this was {failed.doing}",
        remedy=remedy,
        output=death.last_lines,
    )


def named(target: str) -> str:
    """Give a target as people read it."""
    return target or "itself"


def differ(one: bytes, other: bytes) -> str:
    """Say where two states differ."""
    at = next(
        (index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    return f"{len(one)} and {len(other)} bytes, from byte {at} on"


_RETURNS: Final = frozenset({Kind.VALUE, Kind.VOID, Kind.EXCEPTION})
_RULES: Final = {
    Cause.NOT_CONNECTED: "connect",
    Cause.STILL: "still",
    Cause.WRONG: "protocol",
    Cause.EXITED: "ended",
    Cause.DISCONNECTED: "ended",
}
_REPLAY: Final = (
    "what a handler sends may depend on the logged messages and the state alone: look for a clock, a random number, "
    "the order of a map or set, a thread, a file, an address"
)
_FEWER: Final = (
    "on replay a program sends again all that it sent before: look for what is sent only once, only by who leads, or "
    "from outside of a handler"
)
_CHECKPOINT: Final = (
    "what `save` gives has to hold all state, and `load` has to put all of it back: look for a variable of the program "
    "that is in neither; and nothing that was emitted before the checkpoint may be sent behind it"
)
_STATES: Final = "write the state in a fixed order, and nothing into it that is not the same in each run"
_OF_MESSAGES: Final = {
    "an impulse in state": (
        "an impulse may be sent only once the process leads (11, 15 or 10 came), and never by a handler, which runs on "
        "replay too: a handler forks"
    ),
    "before the first record": "send calls from handlers alone; what comes from outside is an impulse",
    "a checkpoint that nobody asked for": "send one Checkpoint for each 2, 10 or 11 that came, and none otherwise",
    "InitialMessage in state": "send InitialMessage once, when 11 comes and no checkpoint came before",
}
