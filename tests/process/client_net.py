"""A client's machine joined to fake replicas by a network in memory, in virtual time.

Bytes arrive at once and in order; a replica that is `down` refuses to be dialed, one that is `cut` swallows
everything. After each event the machine's invariants are checked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from replica_fake import FakeReplica, FakeShard

from deathless.codec.messages import Kind, encode
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
    Send,
    TellRefusal,
    TimerFired,
)
from deathless.core.client.machine import ClientMachine


def message(text: str) -> bytes:
    """A call of handler "echo" whose arguments are a text."""
    return encode(Kind.CALL, method=b"echo", key=b"k", args=text.encode())


class Net:
    """One client and its replicas.

    Args:
        names: addresses of the replicas; the first one leads in epoch 1.
        jitter: the client's; 0 makes it begin at the first address and wait half of each pause.
    """

    def __init__(
        self,
        *names: str,
        jitter: Callable[[], float] = lambda: 0.0,
        shard: FakeShard | None = None,
        short_way: bool = True,
    ) -> None:
        self.now = 0.0
        self.shard = shard or FakeShard()
        self.replicas: dict[str, FakeReplica] = {}
        for name in names:
            self.replicas[name] = FakeReplica(self.shard, name, self._from(name))
            self.replicas[name].hang_up = self._hung_up(name)
        self.addresses: tuple[str, ...] = names
        self.down: set[str] = set()
        self.cut: set[str] = set()
        self.links: dict[LinkId, str] = {}
        self.dialed: list[str] = []
        self.resolved = 0
        self.trace: list[str] = []  # every effect
        self.done: dict[str, bytes] = {}  # waiter -> reply
        self.failed: dict[str, tuple[str, str]] = {}
        self.refused: list[TellRefusal[str]] = []
        self._events: deque[Event[str]] = deque()
        self._busy = False
        nonces = iter(range(10**6))
        self.machine: ClientMachine[str] = ClientMachine(
            service="bank",
            name="c",
            jitter=jitter,
            secret=lambda: b"%016d" % next(nonces),
            short_way=short_way,
        )
        for index, name in enumerate(names):
            self.replicas[name].become("primary" if index == 0 else "standby", 1, names[0])

    def _from(self, name: str) -> Callable[[int, bytes], None]:
        def send(connection: int, data: bytes) -> None:
            if name not in self.cut and LinkId(connection) in self.links:
                self.tell(BytesReceived(link=LinkId(connection), data=data))

        return send

    def _hung_up(self, name: str) -> Callable[[int], None]:
        return lambda connection: self._lose(LinkId(connection))

    def _lose(self, link: LinkId) -> None:
        name = self.links.pop(link, None)
        if name is not None:
            self.replicas[name].lost(link)
            self.tell(LinkLost(link=link, reason="reset"))

    # ---- what tests do ---------------------------------------------------------------------------------------

    def start(self) -> Net:
        self.tell(AddressesFound(addresses=self.addresses))
        return self

    def tell(self, *events: Event[str]) -> None:
        """Tell the machine, and everything that follows from it."""
        self._events.extend(events)
        if self._busy:
            return
        self._busy = True
        while self._events:
            effects = self.machine.handle(self._events.popleft(), self.now)
            self.machine.check_invariants()
            for effect in effects:
                self.trace.append(repr(effect))
                self._do(effect)
        self._busy = False

    def call(self, *texts: str) -> None:
        self.tell(CallsSubmitted(messages=[message(text) for text in texts], waiters=list(texts)))

    def query(self, *texts: str, stale: bool = False) -> None:
        self.tell(QueriesSubmitted(messages=[message(text) for text in texts], waiters=list(texts), stale=stale))

    def advance(self, seconds: float) -> None:
        """Let time pass; the machine's timers fire when they are due."""
        end = self.now + seconds
        for _ in range(20_000):
            due = self.machine.deadline
            if due is None or due > end:
                break
            self.now = max(self.now, due)
            self.tell(TimerFired())
        else:
            raise AssertionError("the machine spins")
        self.now = end

    def kill(self, name: str) -> None:
        self.down.add(name)
        for link in [link for link, at in self.links.items() if at == name]:
            self._lose(link)

    def lead(self, name: str, epoch: int) -> None:
        """A takeover: every reachable replica learns it."""
        for other, replica in self.replicas.items():
            if other not in self.down and other not in self.cut and replica.held is None:
                replica.become("primary" if other == name else "standby", epoch, name)

    def texts(self) -> list[str]:
        """Arguments of everything that was applied, in order."""
        return [raw[8 + 4 + 1 :].decode() for raw in self.shard.applied]

    def _do(self, effect: object) -> None:
        match effect:
            case Dial(link=link, address=address):
                self.dialed.append(address)
                self._dial(link, address)
            case Send(link=link, data=data):
                name = self.links.get(link)
                if name is not None and name not in self.cut:
                    self.replicas[name].received(link, data)
            case HangUp(link=link):
                name = self.links.pop(link, None)
                if name is not None:
                    self.replicas[name].lost(link)
            case Resolve():
                self.resolved += 1
                self.tell(AddressesFound(addresses=self.addresses))
            case CompleteCalls(waiters=waiters, replies=replies):
                self._complete(waiters, replies)
            case FailCalls(waiters=waiters, code=code, text=text):
                for waiter in waiters:
                    assert waiter not in self.done
                    assert waiter not in self.failed
                    self.failed[waiter] = (code, text)
            case TellRefusal():
                self.refused.append(effect)
            case _:
                raise AssertionError(effect)

    def _complete(self, waiters: Sequence[str], replies: Sequence[bytes]) -> None:
        for waiter, reply in zip(waiters, replies, strict=True):
            assert waiter not in self.done, "a reply was handed out twice"
            assert waiter not in self.failed
            self.done[waiter] = reply

    def _dial(self, link: LinkId, address: str) -> None:
        if address in self.down or address not in self.replicas:
            self.tell(LinkLost(link=link, reason="connection refused"))
        elif address not in self.cut:
            self.links[link] = address
            self.tell(LinkOpened(link=link))
