"""What an application's author writes: which state there is, and what a message does to it.

Why it exists: state and handlers are the author's, everything else of the protocol is the same in each program. The
author overrides `handle`, `save` and `load`, and calls `fork`, `call`, `answer` and, outside of handlers, `impulse`.

The contract, which `deathless ambrosia check` looks into:
  - State changes in `handle`, `answered` and `initial` alone, and depends on what these are given and on nothing else:
    no clock, no chance, no order of a set, no file. What they send depends on nothing else either.
  - All state is in what `save` gives, and `load` puts all of it back.
  - Until `is_primary` is true, nothing outside is touched.

Guarantees: one method at a time is called, by one thread. What a handler sends leaves when it returns. Does not: IO
(`connection` does); keep anything of the author's. Imports the binding's machine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from deathless.protocols.ambrosia_binding.binding import Binding as Machine
from deathless.protocols.ambrosia_binding.encoding import Answer, Call, Outcome
from deathless.protocols.ambrosia_binding.errors import NotAllowedNow


class Binding:
    """One application; derive from it."""

    _machine: Machine | None = None
    _send: Callable[[bytes], None] | None = None
    _lock: threading.RLock | None = None
    _handling = False  # one of the methods that depend on logged messages runs

    # ------------------------------------------------------------ for the author to override

    def handle(self, call: Call) -> None:
        """A logged call came.

        Args:
            call: its `method`, `type` and `arguments`; one of type AWAITED is to be answered, now or later.
        """

    def answered(self, answer: Answer) -> None:
        """The answer to a `call` of ours came; `answer.number` says to which."""

    def save(self) -> bytes:
        """Give all state."""
        return b""

    def load(self, state: bytes) -> None:
        """Take state that `save` gave, perhaps in another process or years ago."""

    def first(self) -> bytes:
        """The service starts for the first time, with the state as the constructor left it.

        Returns: what `initial` gets as the first message of the log, also on each replay.
        """
        return b""

    def initial(self, data: bytes) -> None:
        """The first message of the log: what `first` gave."""

    def upgrade(self, *, test: bool) -> None:
        """Go over to the code and the form of state of the next version; a program of one version does nothing.

        Args:
            test: the past is replayed behind it, to see what the new code makes of it.
        """

    def primary(self) -> None:
        """This process leads from now on: it may send impulses, and reach the world outside."""

    # ------------------------------------------------------------ for the author to call

    @property
    def is_primary(self) -> bool:
        """Whether this process leads."""
        return self._machine is not None and self._machine.primary

    def fork(self, method: int, arguments: bytes = b"", *, to: str = "") -> None:
        """Call a method and want no answer.

        Args:
            method: in [-2**31, 2**31).
            arguments: as the receiver understands them.
            to: name of a service; "": this one.

        Raises: NotAllowedNow: not within a handler.
        """
        self._within_handler().fork(method, arguments, to=to)

    def call(self, method: int, arguments: bytes = b"", *, to: str = "", number: int) -> None:
        """Call a method whose answer comes to `answered`.

        Args:
            method: in [-2**31, 2**31).
            arguments: as the receiver understands them.
            to: name of a service; "": this one.
            number: comes back with the answer, in [0, 2**63); a counter in the state, so that it is the same on replay.

        Raises: NotAllowedNow: not within a handler.
        """
        self._within_handler().call(method, arguments, to=to, number_of_call=number)

    def answer(self, call: Call, payload: bytes | None = None, *, error: bytes | None = None) -> None:
        """Answer a call of type AWAITED, once.

        Args:
            call: as `handle` got it; it may be kept in the state until then.
            payload: the result; None: there is none.
            error: the call failed, and this says how.

        Raises: NotAllowedNow: not within a handler.
        """
        outcome = Outcome.EXCEPTION if error is not None else Outcome.NOTHING if payload is None else Outcome.VALUE
        self._within_handler().answer(call, outcome, (payload if error is None else error) or b"")

    def impulse(self, method: int, arguments: bytes = b"", *, to: str = "") -> None:
        """Bring something in from outside: it is logged, and comes back as a call. For other threads than `run`'s too.

        It is durable when it comes back, and not before.

        Args:
            method: in [-2**31, 2**31).
            arguments: as the receiver understands them.
            to: name of a service; "": this one.

        Raises: NotAllowedNow: this process does not lead; or a handler, which runs on replay too, calls it.
        """
        machine, lock = self._connected(), self._lock
        assert lock is not None
        with lock:
            if self._handling:
                raise NotAllowedNow("an impulse within a handler", remedy="a handler calls `fork`")
            machine.impulse(method, arguments, to=to)
            self.flush()

    def flush(self) -> None:
        """Send what was emitted so far; happens by itself behind each record and before each checkpoint."""
        machine, send = self._connected(), self._send
        assert send is not None
        if data := machine.outgoing():
            send(data)

    def _connected(self) -> Machine:
        if self._machine is None:
            raise NotAllowedNow("an application that is not connected", remedy="call it within a handler")
        return self._machine

    def _within_handler(self) -> Machine:
        if not self._handling:
            raise NotAllowedNow(
                "what depends on no logged message",
                remedy="call it within `handle`, `answered` or `initial`; what comes from outside is an `impulse`",
            )
        return self._connected()

    def _connect(self, machine: Machine, send: Callable[[bytes], None], lock: threading.RLock) -> None:
        """Serve one connection from now on."""
        self._machine, self._send, self._lock = machine, send, lock
