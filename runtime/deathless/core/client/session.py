"""A client's session: what is said to the primary, and what its answers mean; pure.

    none -> registering -> standing -> none   expired: DL3009, unknown at the primary, another incarnation
                                     -> none   not ours: DL3031; rolled back: a message that was answered is expected
                                     -> none   retired: a call was refused for good, and all sent before are answered

The session is minted by a logged registration that carries the hash of a secret of ours, the same until the session
ends. Each HELLO shows the secret, so that the session can be spoken in on another connection. When the session has
expired nobody knows what became of the calls that were sent: their callers get SessionExpired, calls that were never
sent go on in a new session. A primary that expects a message to which we have a reply has lost what it acknowledged:
that is ServiceRolledBack, told to all that wait, or else to the next call.

Acknowledgements ride on batches, or alone after ACK_S. What is refused for now is sent again, from the first refused
call on, after the time given. A server may drop calls without a word (a switchover called off): alive and without
progress for RESEND_S (doubling), everything without a reply is sent again; duplicates are answered from the reply table
(I5).

Guarantees: replies handed out once per call, in one session at a time; no seq is ever given other content. Does not:
know links. Imports codec and base.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from deathless.base.backoff import next_pause
from deathless.base.errors import (
    Closed,
    DeathlessError,
    NotPrimary,
    NotYourSession,
    OutcomeUnknown,
    ServiceRolledBack,
    SessionExpired,
    TooLarge,
)
from deathless.base.limits import Limits
from deathless.codec.frames import Run
from deathless.codec.refusals import RegistrationRefused, pause_s
from deathless.codec.session_proof import nonce_of
from deathless.codec.wire import (
    BatchRefused,
    Registered,
    ReplyError,
    Type,
    decode_one_reply,
    decode_queries,
    decode_replies,
    decode_results,
    decode_struct,
    encode_attach,
    encode_batch,
    encode_call,
    encode_queries,
    packet,
)
from deathless.core.client.events import CallsSubmitted, CompleteCalls, Effect, FailCalls, QueriesSubmitted, TellRefusal
from deathless.core.client.link import (
    ACK_S,
    BATCH_BYTES_MAX,
    BATCH_COUNT_MAX,
    QUERIES_IN_FLIGHT_MAX,
    QUERY_COUNT_MAX,
    RESEND_MAX_S,
    RESEND_S,
    RESULTS_PATIENCE_S,
    Link,
    LinkState,
)
from deathless.core.client.results import ResultWindow
from deathless.core.client.window import CallWindow, QueryWindow

W = TypeVar("W")


class ClientSession(Generic[W]):
    """Calls and queries of one client. Arguments as for `ClientMachine`."""

    def __init__(
        self, *, jitter: Callable[[], float], secret: Callable[[], bytes], window_max: int, window_bytes_max: int
    ) -> None:
        self.id = 0  # of the session; 0: none yet
        self.incarnation = 0  # of the service we have a session with; 0: not known
        self.message_bytes_max = Limits().message_bytes_max  # the server's, once it told us
        self.window: CallWindow[W] = CallWindow(window_max=window_max, window_bytes_max=window_bytes_max)
        self.queries: QueryWindow[W] = QueryWindow(QUERIES_IN_FLIGHT_MAX)
        self.results: ResultWindow[W] = ResultWindow()
        self.progressed = True  # the present link to a primary brought something, or none did since the last that did
        self.registering = False  # REGISTER is out
        self.blocked_until = 0.0  # no call is admitted before this; 0: they are
        self.refusal = ("", "")  # (code, text) why
        self.unregistered: tuple[str, str] | None = None  # (code, text) why this primary gave no session; None: it did
        self._window_max = window_max
        self._jitter = jitter
        self._draw_secret = secret
        self.secret = secret()  # of the session, or of the one to be registered. Invariant: changes only when it ends
        self._rolled_back = ""  # why; empty, or nobody has been told yet
        self._retiring = False  # the session ends once its sent calls are answered
        self._queries_blocked_until = 0.0
        self._ack_at: float | None = None
        self._resend_at = 0.0
        self._resend_wait = RESEND_S

    # ---- time ------------------------------------------------------------------------------------------------

    @property
    def owed(self) -> bool:
        """The replica at hand owes us an answer."""
        if self.registering or self.queries.in_flight or self.results.in_flight:
            return True
        return bool(self.window.in_flight) and not self.blocked_until

    @property
    def patience_s(self) -> float:
        """How much longer than usual the replica at hand may be silent."""
        calls = self.registering or self.queries.in_flight or (self.window.in_flight and not self.blocked_until)
        return 0.0 if calls else RESULTS_PATIENCE_S

    def deadline(self, *, leading: bool, owed: bool) -> float:
        """When something is due, with a replica at hand that leads or does not; infinite: nothing is.

        Args:
            leading: it does.
            owed: as `owed` says.
        """
        due = self._resend_at if owed else math.inf
        if leading:
            if self._ack_at is not None and self.id:
                due = min(due, self._ack_at)
            if self.blocked_until and (self.window.unsent or not self.id):
                due = min(due, self.blocked_until)
            if self._queries_blocked_until and len(self.queries):
                due = min(due, self._queries_blocked_until)
        return due

    def timer_fired(self, heard_at: float, now: float) -> None:
        """Send again what a live replica seems to have dropped.

        Args:
            heard_at: when we last heard of it.
            now: the time.
        """
        if now < self._resend_at:
            return
        if now < heard_at + self._resend_wait:
            self.send_again()
        self._resend_wait = next_pause(self._resend_wait, first_s=RESEND_S, most_s=RESEND_MAX_S)
        self._resend_at = now + self._resend_wait

    def send_again(self) -> None:
        """Everything without a reply is to be sent once more."""
        self.window.rewind(self.window.base)
        self.queries.rewind()
        self.results.rewind()
        self.registering = False

    def be_patient(self, now: float) -> None:
        """Something moved, or is owed from now on: patience begins anew, longer where only results are owed."""
        self._resend_wait = RESEND_MAX_S if self.results.in_flight and self.patience_s else RESEND_S
        self._resend_at = now + self._resend_wait

    # ---- what callers want -----------------------------------------------------------------------------------

    def calls_submitted(self, event: CallsSubmitted[W], out: list[Effect[W]]) -> None:
        """Queue calls; those longer than the server takes fail."""
        if self._rolled_back:
            out.append(FailCalls(waiters=event.waiters, code=ServiceRolledBack.code, text=self._rolled_back))
            self._rolled_back = ""
            return
        self.window.submit(event.messages, event.waiters)
        if event.messages and max(map(len, event.messages)) > self.message_bytes_max:
            self._refuse_longer(out)

    def queries_submitted(self, event: QueriesSubmitted[W], out: list[Effect[W]]) -> None:
        """Queue queries; those longer than the server takes fail."""
        longer = [w for m, w in zip(event.messages, event.waiters, strict=True) if len(m) > self.message_bytes_max]
        if not longer:
            self.queries.submit(event.messages, event.waiters, stale=event.stale)
            return
        out.append(self._too_large(longer))
        kept = [(m, w) for m, w in zip(event.messages, event.waiters, strict=True) if len(m) <= self.message_bytes_max]
        self.queries.submit([m for m, _ in kept], [w for _, w in kept], stale=event.stale)

    def _too_large(self, waiters: Sequence[W]) -> FailCalls[W]:
        text = f"the message passes the service's maximum of {self.message_bytes_max} bytes"
        return FailCalls(waiters=waiters, code=TooLarge.code, text=text)

    def _refuse_longer(self, out: list[Effect[W]]) -> None:
        longer = self.window.withdraw_longer(self.message_bytes_max)
        if longer:
            out.append(self._too_large(longer))

    def limits_told(self, message_bytes_max: int, window_max: int, out: list[Effect[W]]) -> None:
        """A replica told the service's maxima."""
        self.message_bytes_max = max(1, message_bytes_max)
        self.window.window_max = max(1, min(self._window_max, window_max))
        self._refuse_longer(out)

    def withdraw(self, waiter: W) -> bool:
        """Take a call that was never sent, or a query, back. False: the call was sent, it stays.

        A result is waited for no more; its call was sent.
        """
        if self.results.withdraw(waiter):
            return False
        return self.queries.withdraw(waiter) or self.window.withdraw(waiter)

    def call_alone(self, message: bytes, waiter: W, now: float) -> bytes:
        """Send one call at once, to a primary that owes nothing, as `calls_submitted` and `pump` would.

        Returns: its packet; empty: something else is there too, and nothing was done.
        """
        window = self.window
        if (
            not self.id
            or self.blocked_until
            or self._retiring
            or self._rolled_back
            or not window.idle
            or len(self.queries)
            or len(self.results)
            or len(message) > min(self.message_bytes_max, BATCH_BYTES_MAX)
        ):
            return b""
        acked = window.acked
        seq = window.send_alone(message, waiter)
        self._ack_at = None
        self._resend_wait = RESEND_S
        self._resend_at = now + RESEND_S
        return encode_call(self.id, seq, acked, message)

    def answered_alone(self, data: bytes, now: float) -> tuple[W, bytes] | None:
        """Take in what came where it is the reply to the only call in flight, as `packet` would.

        Returns: who waits for it, and the reply; None: it is something else, and nothing was done.
        """
        window = self.window
        if window.in_flight != 1 or window.base != window.next_seq - 1:
            return None
        reply = decode_one_reply(data, self.id, window.base)
        if reply is None:
            return None
        self.progressed = True
        self.be_patient(now)
        if self._ack_at is None:
            self._ack_at = now + ACK_S
        return window.answer_alone(), reply

    def fail_unsent(self, code: str, text: str, out: list[Effect[W]]) -> None:
        """Give up what was never sent."""
        waiters = [*self.window.withdraw_all(), *self.queries.clear()]
        if waiters:
            out.append(FailCalls(waiters=waiters, code=code, text=text))

    def close(self, out: list[Effect[W]]) -> None:
        """Give everything up, saying what is known."""
        self.fail_unsent(Closed.code, "the client was closed before it was sent", out)
        sent = [*self.window.restart(), *self.results.clear()]
        if sent:
            text = "the client was closed before the reply came"
            out.append(FailCalls(waiters=sent, code=OutcomeUnknown.code, text=text))

    # ---- what the server says --------------------------------------------------------------------------------

    def begin_service(self, main: Link, now: float, out: list[Effect[W]]) -> None:
        """`main` leads: from here on it gets everything that has no reply, in order."""
        self.blocked_until = self._queries_blocked_until = 0.0
        self.unregistered = None
        self.be_patient(now)
        self.send_again()
        next_seq, main.next_seq = main.next_seq, None
        if self.incarnation not in (0, main.incarnation) and len(self.results):
            # Another incarnation gives the same ids to other invocations.
            text = "the service was created anew or restored"
            out.append(FailCalls(waiters=self.results.clear(), code=SessionExpired.code, text=text))
        if not self.id:
            return
        if self.incarnation != main.incarnation:
            self.expire("the service was created anew or restored", out)
        elif next_seq is None or main.hello_session != self.id:
            return
        elif 0 < next_seq <= self.window.answered:
            text = f"the service expects our message {next_seq}, and has answered {self.window.answered} before"
            self._roll_back(text, out)
        elif next_seq < self.window.base:
            self.expire("the service does not know it", out)

    def packet(self, link: Link, kind: int, body: bytes, now: float, out: list[Effect[W]]) -> bool:
        """Take a packet of the replica at hand in; other types are passed over.

        Returns: False when it says that it is not the primary.
        Raises: CorruptFrame; the caller ends the connection.
        """
        if kind == Type.REPLIES:
            session, seqs, replies = decode_replies(body)
            if session == self.id:
                waiters, fresh = self.window.accept(seqs, replies)
                self._answered(waiters, fresh, now, out)
                if self._ack_at is None:
                    self._ack_at = now + ACK_S
        elif kind == Type.RESULTS:
            waiters, fresh = self.results.accept(*decode_results(body))
            self._answered(waiters, fresh, now, out)
        elif kind == Type.ANSWERS:
            return self._queries_answered(body, now, out)
        elif kind == Type.REGISTERED:
            registered = decode_struct(Registered, body)
            if registered.nonce == nonce_of(self.secret) and not self.id:
                self.id = registered.session
                link.secret = self.secret
                self.incarnation = link.incarnation
                self.registering = False
                self.unregistered = None
                self._answered([], [], now, out)
        elif kind == Type.BATCH_REFUSED:
            return self._batch_refused(decode_struct(RegistrationRefused, body), now, out)
        return True

    def _answered(self, waiters: Sequence[W], replies: Sequence[bytes], now: float, out: list[Effect[W]]) -> None:
        self.progressed = True
        self.be_patient(now)
        if waiters:
            out.append(CompleteCalls(waiters=waiters, replies=replies))

    def _queries_answered(self, body: bytes, now: float, out: list[Effect[W]]) -> bool:
        _, ids, answers = decode_queries(body)
        for answer in answers:
            if answer[:1] == b"\x01" and decode_struct(ReplyError, answer[1:]).code == NotPrimary.code:
                return False
        waiters, fresh = self.queries.accept(ids, answers)
        self._answered(waiters, fresh, now, out)
        return True

    def _batch_refused(self, refused: RegistrationRefused, now: float, out: list[Effect[W]]) -> bool:
        wait = max(pause_s(refused), 0.001) * (1 + 0.5 * self._jitter())
        if refused.code == NotPrimary.code:
            return False
        if refused.session == 0 and (refused.nonce or not refused.first_seq):
            if not refused.nonce or refused.nonce == nonce_of(self.secret):
                self._not_registered(refused, now + wait, wait, out)
        elif refused.session == 0:
            self.queries.rewind(refused.first_seq)
            self._queries_blocked_until = now + wait
        elif refused.session != self.id:
            return True
        elif refused.code == SessionExpired.code:
            self.expire(refused.text, out)
        elif refused.code == NotYourSession.code:
            self.expire(refused.text, out, NotYourSession)
        elif refused.retry_after_ms >= 0:
            self.window.rewind(refused.first_seq)
            self._block(refused, now + wait)
            waiters = self.window.waiting_from(refused.first_seq)
            out.append(TellRefusal(waiters=waiters, code=refused.code, text=refused.text, retry_after_s=wait))
        else:
            # Behind a call that is refused for good no other may take its seq (an old copy of the first may still
            # be under way), so the session ends once the calls before are answered.
            self._retiring = True
            waiters = self.window.retire(refused.first_seq)
            if waiters:
                out.append(FailCalls(waiters=waiters, code=refused.code, text=refused.text))
        return True

    def _not_registered(self, refused: BatchRefused, until: float, wait_s: float, out: list[Effect[W]]) -> None:
        """No call can be sent yet: those who wait hear why, and go on waiting."""
        self.registering = False
        self.unregistered = (refused.code, refused.text)
        self._block(refused, until)
        waiters = self.window.waiting_unsent()
        out.append(TellRefusal(waiters=waiters, code=refused.code, text=refused.text, retry_after_s=wait_s))

    def _block(self, refused: BatchRefused, until: float) -> None:
        self.blocked_until = until
        self.refusal = (refused.code, refused.text)

    def expire(self, why: str, out: list[Effect[W]], error: type[DeathlessError] = SessionExpired) -> None:
        """The session is gone: nobody knows what became of what was sent; go on in a new one."""
        session = self.id
        lost = self.window.restart()
        self._end()
        if lost:
            out.append(FailCalls(waiters=lost, code=error.code, text=f"session {session}: {why}"))

    def _roll_back(self, why: str, out: list[Effect[W]]) -> None:
        """The service is older than what it told us: somebody hears of it, and nothing goes on as if it were not so."""
        told = [*self.window.restart(), *self.window.withdraw_all()]
        self._end()
        if told:
            out.append(FailCalls(waiters=told, code=ServiceRolledBack.code, text=why))
        else:
            self._rolled_back = why

    def _end(self) -> None:
        self.id = 0
        self.secret = self._draw_secret()
        self.registering = self._retiring = False
        self._ack_at = None
        self.blocked_until = 0.0

    # ---- what is sent ----------------------------------------------------------------------------------------

    def has_word(self, now: float) -> bool:
        """Whether `pump` may have something to send, or to do. False: it would change nothing; the cheap answer."""
        window = self.window
        return bool(
            window.unsent
            or len(self.queries)
            or self.results.unsent
            or not self.id
            or self._retiring
            or self.blocked_until
            or (self._ack_at is not None and now >= self._ack_at)
        )

    def pump(self, state: LinkState, now: float) -> list[bytes]:
        """Give the packets to send now to a replica in `state`."""
        if self.blocked_until and now >= self.blocked_until:
            self.blocked_until = 0.0
        parts: list[bytes] = []
        if state is LinkState.LEADING:
            if self._retiring and not self.window.in_flight:
                parts.append(self._ack_packet())
                self.window.restart()
                self._end()
            if self.id:
                self._pump_calls(now, parts)
            elif not self.registering and not self.blocked_until:
                self.registering = True
                parts.append(packet(Type.REGISTER, nonce_of(self.secret)))
            while (wanted := self.results.take(QUERY_COUNT_MAX)) is not None:
                parts.append(encode_attach(*wanted))
        if len(self.queries):
            self._pump_queries(state, now, parts)
        return parts

    def _pump_calls(self, now: float, parts: list[bytes]) -> None:
        window = self.window
        bytes_max = min(BATCH_BYTES_MAX, self.message_bytes_max)
        while window.unsent and not self.blocked_until:
            taken = window.take(count_max=BATCH_COUNT_MAX, bytes_max=bytes_max, only_again=self._retiring)
            if taken is None:
                break
            first, messages, ends = taken
            count = len(messages)
            run = Run(self.id, first, window.acked, count)
            parts.append(encode_batch(run, struct.pack(f"<{count}I", *ends), b"".join(messages)))
            self._ack_at = None
        if self._ack_at is not None and now >= self._ack_at:
            parts.append(self._ack_packet())
            self._ack_at = None

    def last_words(self) -> bytes:
        """An acknowledgement that is still to be said when the client ends; empty: none."""
        return self._ack_packet() if self.id and self._ack_at is not None else b""

    def _ack_packet(self) -> bytes:
        window = self.window
        return encode_batch(Run(self.id, window.next_seq, window.acked, 0), b"", b"")

    def _pump_queries(self, state: LinkState, now: float, parts: list[bytes]) -> None:
        if self._queries_blocked_until:
            if now < self._queries_blocked_until:
                return
            self._queries_blocked_until = 0.0
        for stale in (False, True) if state is LinkState.LEADING else (True,):
            while (taken := self.queries.take(stale, count_max=QUERY_COUNT_MAX, bytes_max=BATCH_BYTES_MAX)) is not None:
                parts.append(encode_queries(taken[0], taken[1], stale=stale))

    def check_invariants(self) -> None:
        """Assert what must hold after each event."""
        self.window.check_invariants()
        assert self.id or self.window.in_flight == 0, "calls are sent in a session only"
        assert not self.registering or not self.id
