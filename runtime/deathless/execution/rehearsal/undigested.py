"""An executor that notes what its turns ask for and no digest of the log stands for.

A digest is over states, replies, and what is sent, started and stopped. None of these is written where a turn

    asks for a timer or a promise, or takes one of them back,
    gives a promise a value, with which its handler may go on much later,
    has another handler go on in its place.

What comes of these is written by later turns, perhaps behind the end of a run. So code that waits for a minute where
the former code waits for an hour gives the same digests until one of the two goes on. Whoever trusts digests asks here
where they say too little.

Guarantees: states, replies and digests are those of HandlerExecutor. Does not: compare. Imports base and codec.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from deathless.execution.executor import HandlerExecutor
from deathless.execution.handlers.entities import Changed, Entities
from deathless.execution.handlers.plan import Plan
from deathless.execution.invocations.all_invocations import Invocations
from deathless.execution.invocations.invocation import Invocation, Turned
from deathless.execution.invocations.journal import Origin
from deathless.execution.invocations.schedules import Schedules
from deathless.execution.turn.operations import Operation, Promise, Timer
from deathless.execution.turn.running import Blame
from deathless.execution.turn.turn import Asked, Settings, Turn

_REPLY: Final = 0
"""Number of the promise of a reply: what it is given is a reply of the message that gives it."""


class _Table(Invocations):
    """The table of invocations, looked at."""

    __slots__ = ("_handler", "found")

    def __init__(
        self,
        plans: Mapping[bytes, Plan],
        entities: Entities,
        settings: Settings,
        schedules: Schedules,
        blame: Blame,
    ) -> None:
        super().__init__(plans, entities, settings, schedules, blame)
        self.found: dict[str, str] = {}  # what was asked for first, by the handler that asked
        self._handler = ""

    def conclude(self, plan: Plan, origin: Origin, changed: Changed, result: object, turn: Turn) -> bytes:
        self._handler = plan.spec.name
        return super().conclude(plan, origin, changed, result, turn)

    def _carry_out(self, invocation: Invocation, turned: Turned, lsn: int, now_us: int) -> bytes | None:
        self._handler = invocation.plan.spec.name
        return super()._carry_out(invocation, turned, lsn, now_us)

    def _send(self, asked: Asked) -> None:
        if what := _undigested(asked):
            self.found.setdefault(self._handler, what)
        super()._send(asked)


def _undigested(asked: Asked) -> str:
    """Name what a turn asked for that it has written nothing of; empty: there is nothing like that."""
    operations: tuple[Operation[object], ...] = (*asked.operations, *asked.cancelled)
    if any(isinstance(each, Timer) for each in operations):
        return "a timer"
    if any(isinstance(each, Promise) for each in operations):
        return "a promise"
    if any(each.operation != _REPLY for each in asked.completions):
        return "a promise to be completed"
    return "another handler to go on" if asked.following is not None else ""


class Undigested(HandlerExecutor):
    """See the module; arguments are those of HandlerExecutor."""

    __slots__ = ()
    make_table = _Table

    @property
    def found(self) -> dict[str, str]:
        """What no digest stands for: by handler, what it asked for first."""
        assert isinstance(self._invocations, _Table)
        return self._invocations.found


def undigested_in(executor: object) -> dict[str, str]:
    """Give what the turns of an executor have asked for that no digest stands for; of one that does not look: none."""
    return executor.found if isinstance(executor, Undigested) else {}
