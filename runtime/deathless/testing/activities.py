"""Activities of a service in an environment: functions of the test's in the place of the author's.

    handler --ctx.run--> ActivityStart --> begins (point `activity`) --> the fake --(`takes`)--> its outcome

When an attempt begins, whether it is begun again after a kill, and what a handler is told, is decided by the core, as
everywhere. A fake runs to its end when its attempt begins; `takes` is how much time passes until its outcome comes. So
a kill in between leaves what the fake did done, and nobody knowing of it.

Guarantees: arguments and results go through the same encoding as those of a real activity. Does not: run an author's
function that no test named. May import the shell's activity process, which is where a reply is made.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from deathless.base.errors import InvalidUse
from deathless.codec.peer_messages import ActivityStart, Reference
from deathless.codec.untrusted import read_msgpack
from deathless.core import events as ev
from deathless.execution.author.service import Service
from deathless.shell.worker.activities import TOO_LONG, ended_by
from deathless.shell.worker.activity_process import run_function
from deathless.testing.loop import Timer

if TYPE_CHECKING:
    from deathless.testing.primary import Primary

NO_TIME: Final = timedelta(0)


class ActivityCall(NamedTuple):
    """One attempt of an activity that began."""

    service: str
    name: str
    arguments: dict[str, object]
    key: str  # the same for every attempt of one call of `ctx.run`
    attempt: int  # from 1


class FakeActivity:
    """What stands for an activity.

    Args:
        service: whose activity it is.
        name: of the activity.
        function: runs in its place, with the same named arguments.
        takes: how much time passes from the beginning of an attempt to its outcome.

    Raises: InvalidUse when there is no such activity, or the function does not take its arguments.
    """

    __slots__ = ("_spec", "calls", "function", "name", "service", "takes")

    def __init__(self, service: Service, name: str, function: Callable[..., object], takes: timedelta) -> None:
        spec = service.activities.get(name)
        if spec is None:
            known = ", ".join(service.activities) or "none"
            raise InvalidUse(f"{service.name} has no activity {name!r}", remedy=f"its activities: {known}")
        fields = spec.args_type.__struct_fields__
        try:
            inspect.signature(function).bind(**dict.fromkeys(fields))
        except TypeError as error:
            raise InvalidUse(
                f"the function for activity {name!r} does not take its arguments: {error}",
                remedy=f"def {name}({', '.join(fields)}): ...",
            ) from None
        self.service = service.name
        self.name = name
        self.function = function
        self.takes = takes
        self.calls: list[ActivityCall] = []  # every attempt that began; a kill may begin one twice, with the same key
        self._spec = spec

    @property
    def keys(self) -> list[str]:
        """The different idempotency keys among the calls, in order: what was done, however often it was tried."""
        return list(dict.fromkeys(call.key for call in self.calls))

    def run(self, start: ActivityStart) -> bytes:
        """Run an attempt as the author's function would be run; gives its reply."""
        arguments = read_msgpack(start.arguments, dict[str, object])
        self.calls.append(ActivityCall(self.service, self.name, arguments, start.key, start.attempt))
        return run_function(replace(self._spec, function=self.function), start, _no_beat)


class Activities:
    """Those of one primary."""

    def __init__(self, primary: Primary) -> None:
        self._primary = primary
        self._running: dict[tuple[int, int], Timer] = {}

    def start(self, start: ActivityStart) -> None:
        """See the port Activities."""
        self._primary.loop.post(lambda: self._begin(start), self._primary.life)

    def stop(self, reference: Reference) -> None:
        """See Activities: its outcome is not asked for any more."""
        timer = self._running.pop((reference.invocation, reference.operation), None)
        if timer is not None:
            timer.cancel()

    def _begin(self, start: ActivityStart) -> None:
        primary, served = self._primary, self._primary.served
        fake = served.fakes.get(start.name)
        if fake is None:
            raise InvalidUse(
                f"{served.name} runs activity {start.name!r}, for which this test has no function",
                remedy=f"env.activity({start.name!r}, function); the author's own is a function, too",
            )
        served.reached("activity", start.name)
        limit, takes = timedelta(microseconds=start.timeout_us), fake.takes
        reply = fake.run(start)
        if start.timeout_us and takes > limit:
            why = f"it took longer than {limit.total_seconds():g} s"
            takes, reply = limit, ended_by(start, TOO_LONG, why, begun=True)
        ended = ev.ActivityEnded(start.invocation, start.operation, start.attempt, reply)
        key = (start.invocation, start.operation)

        def end() -> None:
            self._running.pop(key, None)
            served.reached("outcome", start.name)
            primary.post(ended)

        if takes <= NO_TIME:
            served.reached("outcome", start.name)
            primary.post(ended)
        else:
            us = math.ceil(takes / timedelta(microseconds=1))
            self._running[key] = primary.loop.at(primary.loop.now_us + us, end, primary.life)


def _no_beat() -> None:
    """A sign of life, which nobody waits for."""
