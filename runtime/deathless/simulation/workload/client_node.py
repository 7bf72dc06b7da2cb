"""A simulated client: the real client machine over the simulated network, asking for what its workload says.

Guarantees: an operation is recorded when it is handed to the machine and when its answer is; a client that is killed
never completes anything any more. Does not: decide when to retry (core.client.machine does). May import core, workload,
checkers, network.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from deathless.codec.wire import accepted_invocation
from deathless.core.client.events import (
    AddressesFound,
    BytesReceived,
    CallsSubmitted,
    CompleteCalls,
    Dial,
    Event,
    FailCalls,
    HangUp,
    LinkId,
    LinkLost,
    LinkOpened,
    QueriesSubmitted,
    Resolve,
    ResultsWanted,
    Send,
    TellRefusal,
    TimerFired,
)
from deathless.core.client.machine import ClientMachine
from deathless.simulation.checkers.history import History, Operation, Outcome
from deathless.simulation.workload.lab import NEVER_RUN, SERVICE_NAME, decode_result, encode_request
from deathless.simulation.workload.workload import Request
from deathless.simulation.world.network import Endpoint, Network
from deathless.simulation.world.scheduler import Process, Scheduler, Timer

RESOLVE_US: Final = 1_000


@dataclass(slots=True, eq=False)
class Call:
    """A request under way; `operation` is None for one that repeats another client's."""

    request: Request
    operation: Operation | None
    invocation: int = 0  # the call was accepted as this; its result is waited for


class ClientNode:
    """One client.

    Args:
        name: its process and host.
        addresses: of all replicas.
        requests: what it asks for, in order.
        window: requests under way at once.
        asked: called with each request when it is handed to the machine.
        answered: called with the idempotency key, if any, and the reply.
        service: whom it asks.
        encode: gives the message of a request.
        resulted: called with the id of an invocation whose result it waited for, and the result.
    """

    def __init__(  # noqa: PLR0913 named arguments, each of its own type
        self,
        name: str,
        scheduler: Scheduler,
        network: Network,
        *,
        addresses: Sequence[str],
        requests: Sequence[Request],
        window: int,
        history: History,
        asked: Callable[[Request], None],
        answered: Callable[[bytes, bytes], None],
        service: str = SERVICE_NAME,
        encode: Callable[[Request], bytes] = encode_request,
        resulted: Callable[[int, bytes], None] = lambda _invocation, _reply: None,
    ) -> None:
        self._encode = encode
        self._resulted = resulted
        self.name = name
        self.history = history
        self.sent: list[str] = []  # tags of its own changes, in the order of submission
        self.gone = False  # it was killed
        self.process = scheduler.process(name, name, self._exited)
        self._scheduler = scheduler
        self._network = network
        self._addresses = tuple(addresses)
        self._waiting = deque(requests)
        self._window = window
        self._under_way = 0
        self._next_at: Timer | None = None  # when the next request is due
        self._asked = asked
        self._answered = answered
        self._links: dict[LinkId, Endpoint | None] = {}  # None: being dialed
        self._timer: Timer | None = None
        self._timer_at: float | None = None
        chance = scheduler.fork(f"client/{name}")
        self.machine: ClientMachine[Call] = ClientMachine(
            service=service, name=name, jitter=chance.random, secret=lambda: chance.randbytes(16)
        )

    @property
    def done(self) -> bool:
        """Everything it asked for is answered, or it is gone."""
        return self.gone or (not self._waiting and not self._under_way)

    def start(self) -> None:
        """Begin."""
        self.process.start(self._begin)

    def kill(self) -> None:
        """End it for good."""
        self.gone = True
        self.process.kill()

    def _exited(self, process: Process, error: BaseException | None) -> None:
        self._network.process_died(process)
        if error is not None:
            raise error

    def _begin(self) -> None:
        self._resolve()
        self._plan_next()

    def _resolve(self) -> None:
        self._handle(AddressesFound(addresses=self._addresses))

    # ---- asking ----------------------------------------------------------------------------------------------

    def _plan_next(self) -> None:
        if self._waiting and self._next_at is None and self._under_way < self._window:
            self._next_at = self.process.call_later(self._waiting[0].pause_us, self._ask_next)

    def _ask_next(self) -> None:
        self._next_at = None
        request = self._waiting.popleft()
        operation = self.history.invoke(
            caller=self.name,
            action=request.action,
            keys=request.keys,
            argument=request.argument,
            tag=request.tag,
            now_us=self._scheduler.now_us,
            session="" if request.is_read else self.name,
        )
        if request.tag:
            self.sent.append(request.tag)
        self._asked(request)
        self._submit(Call(request, operation))
        self._plan_next()

    def repeat(self, request: Request) -> None:
        """Ask for what another client asked for, with the same idempotency key."""
        self.process.post(lambda: self._submit(Call(request, None)))

    def _submit(self, call: Call) -> None:
        self._under_way += 1
        message = self._encode(call.request)
        if call.request.is_read:
            self._handle(QueriesSubmitted(messages=[message], waiters=[call], stale=False))
        else:
            self._handle(CallsSubmitted(messages=[message], waiters=[call]))

    def _complete(self, call: Call, reply: bytes) -> None:
        accepted = accepted_invocation(reply)
        if accepted is not None:
            call.invocation = accepted
            self._handle(ResultsWanted(invocations=[accepted], waiters=[call]))
            return
        if call.invocation:
            self._resulted(call.invocation, reply)
        result = decode_result(reply)
        if result in NEVER_RUN:
            # Another's call with the same key may have run.
            outcome = Outcome.UNKNOWN if call.request.idempotency_key else Outcome.REFUSED
            assert isinstance(result, tuple)
            self._fail(call, str(result[1]), outcome)
            return
        self._under_way -= 1
        key = call.request.idempotency_key
        if key:
            self._answered(key, reply)
        if call.operation is not None:
            now_us = self._scheduler.now_us
            self._scheduler.note(self.name, f"{call.request.action} {call.request.tag} -> {result}")
            self.history.complete(call.operation, outcome=Outcome.OK, result=result, now_us=now_us)
        self._plan_next()

    def _fail(self, call: Call, code: str, outcome: Outcome = Outcome.UNKNOWN) -> None:
        """Without more, nobody knows what became of it."""
        self._under_way -= 1
        self._scheduler.note(self.name, f"{call.request.action} {call.request.tag} -> {outcome}, {code}")
        if call.operation is not None:
            now_us = self._scheduler.now_us
            self.history.complete(call.operation, outcome=outcome, result=None, now_us=now_us)
        self._plan_next()

    # ---- the machine -----------------------------------------------------------------------------------------

    def _handle(self, event: Event[Call]) -> None:
        machine = self.machine
        for effect in machine.handle(event, self._scheduler.now_us / 1e6):
            match effect:
                case Send(link=link, data=data):
                    end = self._links.get(link)
                    if end is not None:
                        end.send(data)
                case CompleteCalls(waiters=waiters, replies=replies):
                    for call, reply in zip(waiters, replies, strict=True):
                        self._complete(call, reply)
                case FailCalls(waiters=waiters, code=code):
                    for call in waiters:
                        self._fail(call, code)
                case Dial(link=link, address=address):
                    self._dial(link, address)
                case HangUp(link=link):
                    end = self._links.pop(link, None)
                    if end is not None:
                        end.close()
                case Resolve():
                    self.process.call_later(RESOLVE_US, self._resolve)
                case TellRefusal():
                    pass
        machine.check_invariants()
        self._set_timer()

    def _set_timer(self) -> None:
        deadline = self.machine.deadline
        if deadline == self._timer_at:
            return
        self._timer_at = deadline
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline is not None:
            delay_us = max(0, int(deadline * 1e6) - self._scheduler.now_us + 1)
            self._timer = self.process.call_later(delay_us, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._timer_at = None
        self._handle(TimerFired())

    def _dial(self, link: LinkId, address: str) -> None:
        self._links[link] = None

        def opened(end: Endpoint) -> None:
            if link not in self._links:
                end.close()
                return
            if not end.open:  # it ended before we were told that it stands
                self._lost(link, "closed")
                return
            self._links[link] = end
            end.on_data = lambda data: self._received(link, data)
            end.on_closed = lambda why: self._lost(link, why)
            self._handle(LinkOpened(link=link))

        self._network.connect(self.process, address, opened, lambda why: self._lost(link, why))

    def _received(self, link: LinkId, data: bytes) -> None:
        if link in self._links:
            self._handle(BytesReceived(link=link, data=data))

    def _lost(self, link: LinkId, why: str) -> None:
        if link in self._links:
            del self._links[link]
            self._handle(LinkLost(link=link, reason=why))
