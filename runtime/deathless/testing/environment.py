"""The environment of a test: services in one process, with logical time that is skipped, and kills at chosen points.

    with Environment(orders, stock) as env:
        env.activity("charge", lambda customer, cents: "receipt")
        env.service(orders)["o1"].place("apple", 2)
        env.kill(orders)                            # its successor reads the log, and compares every turn
        env.advance(hours=1)                        # timers, schedules and deadlines, in their order

Every part that decides or keeps anything is the one that runs in production: the core, the engine, the shard, the log
with its lock and seals, sessions, peers and callers. What is replaced is what they stand on: a disk and connections in
memory, one clock that moves when nothing is left to do now, and the functions of activities.

Guarantees: the same test does the same each time, whatever else the machine does; nothing sleeps, and no socket or
thread is used, and files by `save` alone. Leaving the environment runs each log again and compares it (`check`). Does
not: run a service's code in another process, so a hash seed or what a module keeps between turns is not seen;
`deathless check` looks for those. Several shards are not there.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from deathless.base.errors import DeathlessError, Internal, InvalidUse, OutcomeUnknown
from deathless.base.limits import Limits
from deathless.execution.author.service import Service
from deathless.execution.turn.topic import Row, Topic
from deathless.testing.activities import NO_TIME, ActivityCall, FakeActivity
from deathless.testing.caller import Caller, Pending, ServiceCaller
from deathless.testing.fake_peer import FakePeer, Message
from deathless.testing.feeding import Feeder
from deathless.testing.links import Links
from deathless.testing.loop import Loop
from deathless.testing.moments import Moment, Point, Points
from deathless.testing.published import Published, published
from deathless.testing.served import Served

if TYPE_CHECKING:
    from deathless.testing.everywhere import KillReport

START: Final = datetime(2030, 1, 1, tzinfo=UTC)
PATIENCE: Final = timedelta(days=40)
STEPS_MAX: Final = 2_000_000
"""Things that happen in one moment of logical time; beyond, something goes round in a circle."""
DISK: Final = Limits(
    segment_bytes_max=64 << 20, allocate_bytes=1 << 20, frame_bytes_max=4 << 20, spare_bytes=8 << 20, witness_s=60.0
)


class History:
    """What left the services under test, and what they began, in the order in which it did."""

    def __init__(self) -> None:
        self.activities: list[ActivityCall] = []
        self.messages: list[
            tuple[str, Message]
        ] = []  # (to whom, what): to services that are not under test, and drivers

    def to(self, peer: str) -> list[Message]:
        """Give what was sent to one of them."""
        return [message for name, message in self.messages if name == peer]


class Environment:
    """Services under test; use it as a context manager, or close it.

    Args:
        services: those under test, by whose names they call each other.
        seed: of everything that is drawn, `ctx.random` included.
        start: what the clocks show at the beginning.
        takeover: how much time passes between a kill and the next process; none by default.
        patience: how much logical time a test that waits for a result lets pass at most.
        limits: of the services; small ones on purpose test what happens at a limit.
        check: run each log again when the environment ends, and compare.

    Raises: InvalidUse for no service, or two of one name.
    """

    def __init__(
        self,
        *services: Service,
        seed: int = 1,
        start: datetime = START,
        takeover: timedelta = NO_TIME,
        patience: timedelta = PATIENCE,
        limits: Limits = DISK,
        check: bool = True,
    ) -> None:
        names = {each.name for each in services}
        if not services or len(names) < len(services):
            raise InvalidUse("an environment has at least one service, and each of another name")
        if both := sorted(names & {name for each in services for name in each.topics}):
            raise InvalidUse(f"{both[0]!r} is the name of a service and of a topic; both share one namespace")
        self.loop = Loop(round(start.timestamp() * 1e6))
        self.links = Links(self.loop)
        self.points = Points()
        self.seed = seed
        self.peers: dict[str, FakePeer] = {}
        topics = dict.fromkeys(name for each in services for name in each.topics)
        self.topics = {name: FakePeer(name, {}, self.links, self.loop) for name in topics}
        self._settings: dict[str, Any] = {
            "seed": seed, "start": start, "takeover": takeover, "patience": patience, "limits": limits, "check": check,
        }  # fmt: skip
        self._takeover = takeover
        self._patience = patience
        self._check = check
        chance = random.Random(seed)
        self._served = {
            each.name: Served(self, each, random.Random(chance.getrandbits(64)), limits) for each in services
        }
        self._callers: dict[str, ServiceCaller] = {}
        self._machines: dict[str, list[Caller | Feeder]] = {}
        self._problem: DeathlessError | None = None
        self._state = "new"

    # ---- life ------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        self._state = "closed"

    def open(self) -> None:
        """Start the services; `with` does."""
        if self._state == "new":
            self._state = "open"
            for served in self._served.values():
                served.start()
            self.settle()
            self.points.counting = True

    def close(self) -> None:
        """End, and look: at what is due now, at kills that never came, and whether each log gives the same again.

        Raises: Diverged; InvalidUse for a kill that was ordered and whose point nobody reached; what ended a service.
        """
        if self._state != "open":
            return
        self.settle()
        self.points.counting = False
        self._state = "closed"
        missing = self.points.outstanding
        if missing:
            service, moment, left = missing[0]
            raise InvalidUse(f"{service} was to be killed at {moment!r}, and came there {left} times too seldom")
        if self._check:
            for served in self._served.values():
                served.replay()

    # ---- what a test uses ----------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """What the clocks show."""
        return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=self.loop.wall_us)

    @property
    def services(self) -> tuple[Service, ...]:
        """Those under test."""
        return tuple(served.service for served in self._served.values())

    @property
    def killed(self) -> list[Point]:
        """The points at which processes were killed, in order."""
        return list(self.points.killed)

    @property
    def history(self) -> History:
        """What left, for assertions: `env.history.to("mail")`."""
        found = History()
        for served in self._served.values():
            for fake in served.fakes.values():
                found.activities += fake.calls
        for peer in self.peers.values():
            found.messages += [(peer.name, message) for message in peer.messages]
        return found

    def service(self, service: Service | str) -> ServiceCaller:
        """Give what calls a service: a client of its own, the same one each time.

        Raises: InvalidUse for a service that is not under test.
        """
        served = self._of(service)
        if served.name not in self._callers:
            machine = Caller(served)
            self.works_with(served, machine)
            self._callers[served.name] = ServiceCaller(self, served, machine)
        return self._callers[served.name]

    def activity(
        self,
        activity: str | Callable[..., object],
        function: Callable[..., object],
        *,
        takes: timedelta = NO_TIME,
        service: Service | str | None = None,
    ) -> FakeActivity:
        """Say what stands for an activity.

        Args:
            activity: the author's function, or its name.
            function: runs in its place, with the same named arguments: what it gives is the result, what it raises a
                failure, OutcomeUnknown one of which nobody knows. The author's own function may be given, too.
            takes: how much time passes between the beginning of an attempt and its outcome.
            service: whose; may be left out where one service has it.

        Raises: InvalidUse when no service has it, or several do.
        """
        name, owner = self._owner(activity, service)
        fake = owner.fakes[name] = FakeActivity(owner.service, name, function, takes)
        return fake

    def peer(self, name: str, /, **answers: object) -> FakePeer:
        """Have a service of this name that is not under test, or a driver: it keeps what it is sent, and answers.

        Args:
            name: of the service or driver.
            answers: by method: a value, or a function of the arguments by name (and of `key`, if it takes one).

        Raises: InvalidUse for a name that is under test, or was given already.
        """
        if self.knows(name):
            raise InvalidUse(f"{name!r} is in this environment already")
        peer = self.peers[name] = FakePeer(name, answers, self.links, self.loop)
        peer.run_with(self.settle)
        for served in self._served.values():
            if served.primary is not None:
                served.primary.peers.now_leads(name)
        return peer

    def rows(self, topic: Topic[Row]) -> list[Published[Row]]:
        """Give the rows that were published in a topic, in their order.

        Raises: InvalidUse for a topic of a service that is not under test.
        """
        of = next((each.name for each in self.services if each.topics.get(topic.name) is topic), "")
        if not of:
            raise InvalidUse(f"{topic!r} is of no service that is under test here")
        if self._state == "open":
            self.settle()
        return [published(topic, each) for each in self.topics[topic.name].messages if each.source == of]

    def advance(self, delta: timedelta = NO_TIME, /, **parts: float) -> None:
        """Let logical time pass: whatever becomes due happens, in its order.

        Args:
            delta: how much.
            parts: of a timedelta, by name: `hours=1`.

        Raises: what ended a service meanwhile.
        """
        self._move((delta + timedelta(**parts)) // timedelta(microseconds=1))

    def settle(self) -> None:
        """Let everything happen that is due now; time stands still. Raises: what ended a service."""
        step, steps = self.loop.step, 0
        while step():
            steps += 1
            if self._problem is not None:
                problem, self._problem = self._problem, None
                raise problem
            if steps > STEPS_MAX:
                raise Internal(f"more than {STEPS_MAX} steps at {self.now}: something goes round in a circle")
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem

    def kill(self, service: Service | str, *, at: Moment | None = None, number: int = 1) -> None:
        """Kill the process that leads a service, as by kill -9; the next one takes over.

        Args:
            service: whose.
            at: the point at which it dies, of `deathless.testing.MOMENTS`; None: now.
            number: at the so-many-th point of this name from now on.

        Raises: InvalidUse, InvalidArgument; what ended a service: Diverged, when a handler did not do the same again.
        """
        served = self._of(service)
        if at is not None:
            self.points.order(served.name, at, number)
            return
        self.settle()
        served.kill()
        self.settle()

    takeover = kill

    def stop(self, service: Service | str) -> None:
        """Have nobody lead a service, until `start`."""
        served = self._of(service)
        self.settle()
        served.stopped = True
        served.kill()
        self.settle()

    def start(self, service: Service | str) -> None:
        """Have somebody lead a service again."""
        served = self._of(service)
        served.stopped = False
        served.start()
        self.settle()

    def checkpoint(self, service: Service | str) -> None:
        """Have a checkpoint written, from which the next process begins in the place of the log's beginning."""
        self._of(service).checkpoint()
        self.settle()

    def save(self, service: Service | str, folder: str | os.PathLike[str]) -> None:
        """Write a service's folder, as its processes would have left it: for `replay`, and for `deathless log`.

        A second passes before, in which an idle primary writes down that everything is confirmed.

        Args:
            service: which one.
            folder: that is not there yet, or is empty.

        Raises: InvalidUse for a folder that holds something; OSError.
        """
        place = Path(folder)
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise InvalidUse(f"{place} is there already, and is not an empty folder")
        self.advance(seconds=1)
        self._of(service).save(place)

    def states(self) -> dict[str, dict[bytes, bytes]]:
        """Give the encoded states of all services, by service and key."""
        self.settle()
        return {name: served.states() for name, served in self._served.items() if not served.stopped}

    @contextmanager
    def again(self, kill_at: int) -> Iterator[Environment]:
        """Give an environment like this one, as it was when it began, with the functions that stand for activities.

        Args:
            kill_at: number of the point that kills; 0: none does.
        """
        env = Environment(*self.services, **self._settings)
        env.points = Points(kill_at)
        for name, served in self._served.items():
            for fake in served.fakes.values():
                env.activity(fake.name, fake.function, takes=fake.takes, service=name)
        for peer in self.peers.values():
            env.peer(peer.name, **peer.answers)
        with env:
            yield env

    def kill_everywhere(self, scenario: Callable[[Environment], object], **how: Any) -> KillReport:
        """Run a scenario once for each point at which a process can be killed, in environments like this one.

        Args:
            scenario: is given a new environment, with the functions that this one has for activities and peers.
            how: `outcome` and `every`, see `deathless.testing.kill_everywhere`.

        Returns: what that gives. Raises: as that.
        """
        from deathless.testing.everywhere import kill_everywhere_in  # noqa: PLC0415 - it is made of environments

        return kill_everywhere_in(self, scenario, **how)

    # ---- for the parts -----------------------------------------------------------------------------------------

    def knows(self, name: str) -> bool:
        """Is there a service of this name, under test or not?"""
        return name in self._served or name in self.peers or name in self.topics

    def succeed(self, served: Served) -> None:
        """The process that led a service was killed."""
        served.restart_after(self._takeover)

    def failed(self, error: DeathlessError) -> None:
        """A service ended for an error: the test hears of the first one."""
        self._problem = self._problem or error

    def now_leads(self, served: Served) -> None:
        """Somebody leads a service: who wants to talk to it connects."""
        name = served.name
        for machine in self._machines.get(name, ()):
            self.loop.post(machine.now_leads)
        for other in self._served.values():
            if other.primary is not None:
                self.loop.post(partial(other.primary.peers.now_leads, name), other.primary.life)
        for peer in self.peers.values():
            self.loop.post(partial(peer.now_leads, name))

    def works_with(self, served: Served, machine: Caller | Feeder) -> None:
        """Something of the test works with a service: it is told when somebody leads, and of time."""
        self._machines.setdefault(served.name, []).append(machine)

    def wait(self, pending: Pending[Any] | Feeder, timeout: float | None) -> None:
        """Let time pass until a call is over, or rows are taken in.

        Raises: OutcomeUnknown when it is not after `timeout` seconds, or nothing can happen any more.
        """
        patience = self._patience if timeout is None else timedelta(seconds=timeout)
        until_us = self.loop.now_us + patience // timedelta(microseconds=1)
        while True:
            self.settle()
            if pending.done():
                return
            due_us = self._next_us()
            if due_us is None:
                raise OutcomeUnknown(
                    f"{pending.what}({pending.key!r}) waits, and nothing can happen any more{self._told()}",
                    remedy="complete what it waits for, or start what is stopped",
                )
            if due_us > until_us:
                self._pass(until_us)
                self.settle()
                self._check_over(pending, patience)
                return
            self._pass(due_us)

    def _check_over(self, pending: Pending[Any] | Feeder, patience: timedelta) -> None:
        """Look whether a call is over when the patience is. Raises: OutcomeUnknown."""
        if not pending.done():
            raise OutcomeUnknown(
                f"{pending.what}({pending.key!r}): no result within {patience} of logical time{self._told()}"
            )

    def _told(self) -> str:
        """Say what a call waits for, as far as that is known."""
        told = []
        for served in self._served.values():
            if served.primary is None:
                told.append(f"{served.name} is stopped")
            elif served.primary.leads:
                told += [
                    f"{served.name}: {view.handler}({view.key!r}) waits for {', '.join(view.waits_for) or 'its turn'}"
                    for view in served.primary.engine.shard.executor.invocations(count_max=10)
                ]
        return f": {'; '.join(told)}" if told else ""

    # ---- time ------------------------------------------------------------------------------------------------

    def _move(self, us: int) -> None:
        if us < 0:
            raise InvalidUse("time does not go back")
        until_us = self.loop.now_us + us
        self.settle()
        while (due_us := self._next_us()) is not None and due_us <= until_us:
            self._pass(due_us)
            self.settle()
        self._pass(until_us)
        self.settle()

    def _next_us(self) -> int | None:
        """When something is due next; None: never."""
        dues = [self.loop.next_us()]
        dues += [served.primary.wakes_us() for served in self._served.values() if served.primary is not None]
        dues += [machine.wakes_us() for machine in self._all_machines()]
        found = [due for due in dues if due is not None]
        return max(min(found), self.loop.now_us) if found else None

    def _pass(self, us: int) -> None:
        """Have it be a later moment."""
        self.loop.move_to(us)
        for served in self._served.values():
            if served.primary is not None:
                served.primary.fire()
        for machine in self._all_machines():
            machine.fire()

    def _all_machines(self) -> list[Caller | Feeder]:
        return [machine for machines in self._machines.values() for machine in machines]

    # ---- names -----------------------------------------------------------------------------------------------

    def _of(self, service: Service | str) -> Served:
        if self._state != "open":
            raise InvalidUse(f"the environment is {self._state}", remedy="use it in `with Environment(...) as env:`")
        name = service if isinstance(service, str) else service.name
        served = self._served.get(name)
        if served is None or (not isinstance(service, str) and served.service is not service):
            raise InvalidUse(f"{name!r} is not under test here", remedy=f"Environment({name}, ...)")
        return served

    def _owner(self, activity: str | Callable[..., object], service: Service | str | None) -> tuple[str, Served]:
        wanted = None if service is None else service if isinstance(service, str) else service.name
        found = [
            (spec.name, served)
            for name, served in self._served.items()
            for spec in served.service.activities.values()
            if wanted in (None, name) and (spec.name == activity or spec.function is activity)
        ]
        told = activity if isinstance(activity, str) else getattr(activity, "__name__", repr(activity))
        if not found:
            raise InvalidUse(f"no service of this environment has an activity {told!r}")
        if len(found) > 1:
            raise InvalidUse(f"several services have an activity {told!r}", remedy="say which: service=...")
        return found[0]
