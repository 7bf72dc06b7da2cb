"""The client's side of the wire, without IO: finds the primary, keeps one session, loses no call.

States (derived, so no two parts can disagree):

    SEEKING -> REGISTERING -> READY      -> CLOSED from each
       ^___________|____________|        the link to the primary is lost, steps down, or a higher epoch shows

    what is                               state
    no link, or none to a primary         SEEKING
    a link to the primary, no session     REGISTERING
    a link to the primary, a session      READY

Links. `main` is the best replica at hand: the primary, or one that waits with us and tells at once who becomes it
(each replica pushes ROLE). `probe` is the one other link: the next candidate, or, while `main` is silent, a watcher
at another replica. A probe takes over from `main` when it leads and `main` does not, or in a higher epoch, or in the
same one while `main` is silent. A replica that calls itself primary in an epoch below one that we were served in is
not believed; it could do no harm (I2), only cost time.

    link state    next                                      timed by
    DIALING       GREETING on LinkOpened (HELLO is sent)    greet limit, doubling per failed round
    GREETING      LEADING | FOLLOWING on WELCOME            the same limit
    FOLLOWING     LEADING by ROLE                           as probe, or silent while owing an answer: WATCH_S
    LEADING       FOLLOWING by ROLE or DL1001               PING_S, SUSPECT_S of silence while owing an answer

Silence. A frozen primary sends no FIN. Owed something and hearing nothing for PING_S we ping, for SUSPECT_S we ask
another replica. A server may drop calls without a word (a switchover called off); alive and without progress for
RESEND_S (doubling) everything without a reply is sent again; duplicates are answered from the reply table (I5).

Sessions. The session is minted by a logged registration under a nonce of ours, the same nonce until the answer is
here. When it is gone (DL3009, an unknown session or fewer messages at the primary, another incarnation) nobody knows
what became of the calls that were sent: their callers get SessionExpired, calls that were never sent go on in a new
session. Acknowledgements ride on batches, or alone after ACK_S.

Nothing is given up silently (I4): without an error to tell, a call waits for ever; a caller's own time limit is the
shell's. Guarantees: replies exactly once per call; calls of one client reach the log in the order of submission; no
clock, no chance: `now` (seconds, monotonic) comes with each event, jitter and nonces through the constructor; equal
events give equal effects. Does not: IO, decode results. Imports codec and base.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from deathless.base.errors import (
    Closed,
    CorruptFrame,
    DataCorrupt,
    ForeignDirectory,
    Invalid,
    NotPrimary,
    OutcomeUnknown,
    SessionExpired,
    TooLarge,
)
from deathless.base.limits import Limits
from deathless.codec.frames import Run
from deathless.codec.wire import (
    PROTOCOL_VERSION,
    BatchRefused,
    Hello,
    Refused,
    Registered,
    ReplyError,
    Role,
    Type,
    Welcome,
    decode_queries,
    decode_replies,
    decode_struct,
    encode_batch,
    encode_queries,
    packet,
    struct_packet,
)
from deathless.core.client_events import (
    AddressesFound,
    BytesReceived,
    CallsSubmitted,
    CloseRequested,
    CompleteCalls,
    Dial,
    Effect,
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
    error_of,
)
from deathless.core.client_link import (
    ACK_S,
    BACKOFF_MAX_S,
    BACKOFF_MIN_S,
    BATCH_BYTES_MAX,
    BATCH_COUNT_MAX,
    EXPONENT_MAX,
    GREET_MAX_S,
    GREET_S,
    PING_S,
    PRIMARY_ROLE,
    QUERIES_IN_FLIGHT_MAX,
    QUERY_COUNT_MAX,
    RESEND_MAX_S,
    RESEND_S,
    SUSPECT_S,
    WATCH_S,
    WINDOW_BYTES_MAX,
    WINDOW_MAX,
    Link,
    LinkState,
    State,
)
from deathless.core.client_window import CallWindow, QueryWindow

W = TypeVar("W")


class ClientMachine(Generic[W]):
    """One client of one service.

    Args:
        service: its name.
        name: ours, for the service's operators.
        token: shared secret, empty: none.
        jitter: gives a number in [0, 1) per call.
        nonce: gives 16 fresh random bytes per call.
        window_max, window_bytes_max: calls without a reply, and their bytes, at most.
    """

    def __init__(
        self,
        *,
        service: str,
        name: str,
        token: str = "",
        jitter: Callable[[], float],
        nonce: Callable[[], bytes],
        window_max: int = WINDOW_MAX,
        window_bytes_max: int = WINDOW_BYTES_MAX,
    ) -> None:
        self.service = service
        self.name = name
        self.session = 0  # 0: none yet
        self.incarnation = 0  # of the service we have a session with; 0: not known
        self.epoch = 0  # highest epoch we were served in
        self.message_bytes_max = Limits().message_bytes_max  # the server's, once it told us
        self.last_problem = ""  # why the last link failed, for people
        self.window: CallWindow[W] = CallWindow(window_max=window_max, window_bytes_max=window_bytes_max)
        self.queries: QueryWindow[W] = QueryWindow(QUERIES_IN_FLIGHT_MAX)
        self._window_max = window_max
        self._token = token
        self._jitter = jitter
        self._draw_nonce = nonce
        self._nonce = nonce()  # of the registration under way. Invariant: changes only when the session ends
        self._registering = False  # REGISTER is out on `main`
        self._retiring = False  # the session ends once its sent calls are answered
        self._anonymous = False  # HELLO names neither session nor incarnation: one that did was refused
        self._closed = False
        self._main: Link | None = None
        self._probe: Link | None = None
        self._last_link = 0
        self._addresses: tuple[str, ...] = ()
        self._learned = ""  # the primary's address, as a replica told us
        self._hint = ""  # to be dialed next
        self._hint_used = (0, "")  # (epoch, address) of the last hint, so that it is followed once
        self._turn = 0  # index of the next candidate
        self._tried = 0  # dialed in this round
        self._rounds = 0  # rounds without success
        self._progressed = True  # the last link to a primary brought something
        self._dial_at = 0.0  # not before
        self._refusals: dict[str, tuple[str, str]] = {}  # address -> (code, text) of definite refusals
        self._suspected = False  # `main` leads, owes, and is silent
        self._blocked_until = 0.0  # nothing is admitted before this
        self._refusal: tuple[str, str] = ("", "")
        self._queries_blocked_until = 0.0
        self._ack_at: float | None = None
        self._resend_at: float | None = None
        self._resend_wait = RESEND_S

    # ---- what others may see ---------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """Where the client stands."""
        if self._closed:
            return State.CLOSED
        if not self._leading:
            return State.SEEKING
        return State.READY if self.session else State.REGISTERING

    @property
    def _leading(self) -> bool:
        return self._main is not None and self._main.state is LinkState.LEADING

    @property
    def connected(self) -> str:
        """Address of the replica at hand; empty: none."""
        return self._main.address if self._main is not None else ""

    def refusal(self, now: float) -> tuple[str, str, float] | None:
        """(code, text, seconds to wait) while the service admits nothing; None: it does."""
        return (*self._refusal, self._blocked_until - now) if now < self._blocked_until else None

    @property
    def deadline(self) -> float | None:
        """When TimerFired is due, by the clock of `now`; None: nothing is waited for."""
        if self._closed:
            return None
        due: list[float] = []
        main = self._main
        if self._probe is not None:
            due.append(self._probe.deadline)
        elif not self._leading or self._suspected:
            due.append(self._dial_at)
        if self._ack_at is not None and self.state is State.READY:
            due.append(self._ack_at)
        if main is not None and self._owed:
            if self._resend_at is not None:
                due.append(self._resend_at)
            if not self._suspected:
                due.append(main.heard_at + (PING_S if not main.pinged else SUSPECT_S if self._leading else WATCH_S))
        if self._leading and self._blocked_until and (self.window.unsent or not self.session):
            due.append(self._blocked_until)
        if self._leading and self._queries_blocked_until and len(self.queries):
            due.append(self._queries_blocked_until)
        return min(due, default=None)

    @property
    def _owed(self) -> bool:
        """The replica at hand owes us an answer."""
        if self._registering or self.queries.in_flight:
            return True
        return bool(self.window.in_flight) and not self._blocked_until

    # ---- events ----------------------------------------------------------------------------------------------

    def handle(self, event: Event[W], now: float) -> list[Effect[W]]:
        """Take one event in; give what must be done, in order."""
        out: list[Effect[W]] = []
        if self._closed:
            if isinstance(event, CallsSubmitted | QueriesSubmitted):
                out.append(FailCalls(waiters=event.waiters, code=Closed.code, text="the client is closed"))
            return out
        match event:
            case BytesReceived(link=link, data=data):
                self._bytes_received(self._link(link), data, now, out)
            case CallsSubmitted(messages=messages, waiters=waiters):
                self.window.submit(messages, waiters)
                if messages and max(map(len, messages)) > self.message_bytes_max:
                    self._refuse_longer(out)
            case QueriesSubmitted():
                self._queries_submitted(event, out)
            case TimerFired():
                self._timer_fired(now, out)
            case LinkOpened(link=link):
                self._link_opened(self._link(link), out)
            case LinkLost(link=link, reason=reason):
                self._lost(self._link(link), reason, now, out)
            case AddressesFound(addresses=addresses):
                self._addresses_found(addresses, now)
            case CloseRequested():
                self._close(out)
                return out
        self._seek(now, out)
        self._pump(now, out)
        return out

    def withdraw(self, waiter: W) -> bool:
        """Take a call that was never sent, or a query, back. False: the call was sent, it stays."""
        return self.queries.withdraw(waiter) or self.window.withdraw(waiter)

    def _link(self, link: LinkId) -> Link | None:
        for known in (self._main, self._probe):
            if known is not None and known.id == link:
                return known
        return None

    def _addresses_found(self, addresses: tuple[str, ...], now: float) -> None:
        if addresses == self._addresses:
            return
        if not self._addresses:
            # Clients of one service begin at different replicas, so one frozen replica does not delay them all.
            self._turn = int(self._jitter() * len(addresses))
        self._addresses = addresses
        self._dial_at = now  # there is somebody new to ask
        self._refusals = {a: r for a, r in self._refusals.items() if a in addresses}

    def _queries_submitted(self, event: QueriesSubmitted[W], out: list[Effect[W]]) -> None:
        messages, waiters = list(event.messages), list(event.waiters)
        if messages and max(map(len, messages)) > self.message_bytes_max:
            longer = [w for m, w in zip(messages, waiters, strict=True) if len(m) > self.message_bytes_max]
            out.append(self._too_large(longer))
            pairs = [(m, w) for m, w in zip(messages, waiters, strict=True) if len(m) <= self.message_bytes_max]
            messages, waiters = [m for m, _ in pairs], [w for _, w in pairs]
        self.queries.submit(messages, waiters, stale=event.stale)

    def _too_large(self, waiters: Sequence[W]) -> FailCalls[W]:
        text = f"the message passes the service's maximum of {self.message_bytes_max} bytes"
        return FailCalls(waiters=waiters, code=TooLarge.code, text=text)

    def _refuse_longer(self, out: list[Effect[W]]) -> None:
        longer = self.window.withdraw_longer(self.message_bytes_max)
        if longer:
            out.append(self._too_large(longer))

    def _timer_fired(self, now: float, out: list[Effect[W]]) -> None:
        probe, main = self._probe, self._main
        if probe is not None and now >= probe.deadline:
            self._hang_up(probe, out)
            self._lost(probe, f"no answer ({probe.state.value})", now, out)
        if main is None or not self._owed:
            return
        silence = now - main.heard_at
        if silence >= PING_S and not main.pinged:
            main.pinged = True
            out.append(Send(link=main.id, data=packet(Type.PING)))
        if not self._leading and silence >= WATCH_S:
            self._hang_up(main, out)
            self._lost(main, "silent", now, out)
            return
        if self._leading and silence >= SUSPECT_S and not self._suspected:
            self._suspected = True
            self._tried = 0
            self._dial_at = now
        if self._resend_at is not None and now >= self._resend_at:
            if silence < self._resend_wait:
                # Heard, so not cut off, but no progress: it dropped what we sent (a switchover called off).
                self._send_again()
            self._resend_wait = min(2 * self._resend_wait, RESEND_MAX_S)
            self._resend_at = now + self._resend_wait

    def _send_again(self) -> None:
        self.window.rewind(self.window.base)
        self.queries.rewind()
        self._registering = False

    def _close(self, out: list[Effect[W]]) -> None:
        if self._main is not None and self._ack_at is not None and self.state is State.READY:
            out.append(Send(link=self._main.id, data=self._ack_packet()))
        for link in (self._main, self._probe):
            if link is not None:
                self._hang_up(link, out)
        self._closed = True
        unsent = [*self.window.withdraw_all(), *self.queries.clear()]
        sent = self.window.restart()
        if unsent:
            out.append(FailCalls(waiters=unsent, code=Closed.code, text="the client was closed before it was sent"))
        if sent:
            text = "the client was closed before the reply came"
            out.append(FailCalls(waiters=sent, code=OutcomeUnknown.code, text=text))

    # ---- links -----------------------------------------------------------------------------------------------

    def _seek(self, now: float, out: list[Effect[W]]) -> None:
        """Keep the probe in step with whether we look for a primary."""
        if self._leading and not self._suspected:
            if self._probe is not None:
                self._hang_up(self._probe, out)
                self._probe = None
            return
        if self._probe is not None or now < self._dial_at:
            return
        address = self._next_address()
        if not address:
            self._missed(now, out, whole_round=True)
            return
        self._tried += 1
        self._last_link += 1
        limit = min(GREET_S * 2 ** min(self._rounds, EXPONENT_MAX), GREET_MAX_S)
        self._probe = Link(LinkId(self._last_link), address, now + limit)
        out.append(Dial(link=self._probe.id, address=address))

    def _candidates(self) -> tuple[str, ...]:
        learned = self._learned
        return self._addresses if not learned or learned in self._addresses else (*self._addresses, learned)

    def _next_address(self) -> str:
        """The address to dial now; empty: only the replica at hand is known."""
        if self._hint:
            hint, self._hint = self._hint, ""
            return hint
        candidates = self._candidates()
        for _ in candidates:
            address = candidates[self._turn % len(candidates)]
            self._turn += 1
            at_hand = self._main is not None and self._main.address == address
            # The replica at hand is dialed anew now and then: its old connection may be what is broken.
            if not at_hand or self._rounds % (2 if self._suspected else 4) == 1:
                return address
        return ""

    def _missed(self, now: float, out: list[Effect[W]], *, whole_round: bool = False) -> None:
        """A candidate brought nothing: the next one at once, or after a pause when all had their turn."""
        self._dial_at = now
        others = len(self._candidates()) - (self._main is not None)
        if whole_round or self._tried >= others:
            self._tried = 0
            self._rounds += 1
            pause = min(BACKOFF_MIN_S * 2 ** min(self._rounds, EXPONENT_MAX), BACKOFF_MAX_S)
            self._dial_at = now + pause * (0.5 + 0.5 * self._jitter())
            out.append(Resolve())
            self._tell_refusals(out)

    def _tell_refusals(self, out: list[Effect[W]]) -> None:
        """Every replica refuses us for good (token, service): say so to those whose call was never sent."""
        candidates = self._candidates()
        if not candidates or any(address not in self._refusals for address in candidates):
            return
        waiters = [*self.window.withdraw_all(), *self.queries.clear()]
        if waiters:
            code, text = self._refusals[candidates[0]]
            out.append(FailCalls(waiters=waiters, code=code, text=text))

    @staticmethod
    def _hang_up(link: Link, out: list[Effect[W]]) -> None:
        out.append(HangUp(link=link.id))

    def _lost(self, link: Link | None, reason: str, now: float, out: list[Effect[W]]) -> None:
        if link is None:
            return
        self.last_problem = f"{link.address}: {reason}"
        if link is self._probe:
            self._probe = None
            self._missed(now, out)
            return
        self._main = None
        self._suspected = False
        self._registering = False
        self._tried = 0
        if self._progressed:
            self._rounds = 0
            self._dial_at = now
        else:
            self._missed(now, out, whole_round=True)
        self._progressed = False
        probe = self._probe
        if probe is not None and probe.state is LinkState.FOLLOWING:
            self._main, self._probe = probe, None

    def _link_opened(self, link: Link | None, out: list[Effect[W]]) -> None:
        if link is None or link.state is not LinkState.DIALING:
            return
        link.state = LinkState.GREETING
        session, incarnation = (0, 0) if self._anonymous else (self.session, self.incarnation)
        link.hello_session = session
        link.named = bool(session or incarnation)
        hello = Hello(PROTOCOL_VERSION, "client", self.service, self.name, self._token, session, incarnation)
        out.append(Send(link=link.id, data=struct_packet(Type.HELLO, hello)))

    def _bytes_received(self, link: Link | None, data: bytes, now: float, out: list[Effect[W]]) -> None:
        if link is None:
            return
        link.heard_at = now
        link.pinged = False
        if link is self._main:
            self._suspected = False
        try:
            for kind, body in link.reader.feed(data):
                self._packet(link, kind, body, now, out)
                if link is not self._main and link is not self._probe:
                    return
        except (TooLarge, CorruptFrame) as error:
            self._hang_up(link, out)
            self._lost(link, error.message, now, out)

    # ---- packets ---------------------------------------------------------------------------------------------

    def _packet(self, link: Link, kind: int, body: bytes, now: float, out: list[Effect[W]]) -> None:
        if link.state in (LinkState.DIALING, LinkState.GREETING):
            if kind == Type.WELCOME:
                self._welcomed(link, decode_struct(Welcome, body), now, out)
            elif kind == Type.REFUSED:
                self._refused(link, decode_struct(Refused, body), now, out)
            else:
                raise CorruptFrame(f"packet of type {kind} before WELCOME")
            return
        if kind == Type.ROLE:
            role = decode_struct(Role, body)
            self._role_told(link, role.role, role.epoch, role.primary, now, out)
        elif kind == Type.PING:
            out.append(Send(link=link.id, data=packet(Type.PONG)))
        elif link is not self._main:
            return
        elif kind == Type.REPLIES:
            session, seqs, replies = decode_replies(body)
            if session == self.session:
                waiters, fresh = self.window.accept(seqs, replies)
                self._answered(waiters, fresh, now, out)
                if self._ack_at is None:
                    self._ack_at = now + ACK_S
        elif kind == Type.ANSWERS:
            self._queries_answered(link, body, now, out)
        elif kind == Type.REGISTERED:
            registered = decode_struct(Registered, body)
            if registered.nonce == self._nonce and not self.session:
                self.session = registered.session
                self.incarnation = link.incarnation
                self._registering = False
                self._answered([], [], now, out)
        elif kind == Type.BATCH_REFUSED:
            self._batch_refused(link, decode_struct(BatchRefused, body), now, out)

    def _answered(self, waiters: Sequence[W], replies: Sequence[bytes], now: float, out: list[Effect[W]]) -> None:
        """Hand replies out; something moved, so patience begins anew."""
        self._progressed = True
        self._rounds = 0
        self._resend_wait = RESEND_S
        self._resend_at = now + RESEND_S
        if waiters:
            out.append(CompleteCalls(waiters=waiters, replies=replies))

    def _queries_answered(self, link: Link, body: bytes, now: float, out: list[Effect[W]]) -> None:
        _, ids, answers = decode_queries(body)
        for key, answer in zip(ids, answers, strict=True):
            if answer[:1] == b"\x01" and decode_struct(ReplyError, answer[1:]).code == NotPrimary.code:
                self.queries.rewind(key)
                self._step_down(link, now)
                return
        waiters, fresh = self.queries.accept(ids, answers)
        self._answered(waiters, fresh, now, out)

    def _welcomed(self, link: Link, welcome: Welcome, now: float, out: list[Effect[W]]) -> None:
        if welcome.service != self.service:
            raise CorruptFrame(f"this is service {welcome.service}, not {self.service}")
        self._refusals.pop(link.address, None)
        link.incarnation = welcome.incarnation
        link.state = LinkState.FOLLOWING
        if welcome.role == PRIMARY_ROLE:
            link.next_seq = welcome.next_seq
        self.message_bytes_max = max(1, welcome.message_bytes_max)
        self.window.window_max = max(1, min(self._window_max, welcome.window_max))
        self._refuse_longer(out)
        self._role_told(link, welcome.role, welcome.epoch, welcome.primary, now, out)

    def _refused(self, link: Link, refused: Refused, now: float, out: list[Effect[W]]) -> None:
        """HELLO was refused: for good (token, service), because of the session it named, or for now."""
        self._hang_up(link, out)
        if link.named and refused.code in (SessionExpired.code, ForeignDirectory.code):
            # Only the primary can say that a session is gone; come back without naming it and see who leads.
            self._anonymous = True
        elif isinstance(error_of(refused.code, ""), Invalid | DataCorrupt):
            self._refusals[link.address] = (refused.code, refused.text)
        self._lost(link, f"{refused.code} {refused.text}", now, out)

    def _role_told(self, link: Link, role: str, epoch: int, primary: str, now: float, out: list[Effect[W]]) -> None:
        before = (link.state, link.epoch)
        known = link.incarnation == self.incarnation or not self.incarnation
        leads = role == PRIMARY_ROLE and (epoch >= self.epoch or not known)
        link.state = LinkState.LEADING if leads else LinkState.FOLLOWING
        link.epoch = epoch
        if link is self._probe:
            self._weigh(link, now, out)
        elif leads and before != (link.state, epoch):
            self._begin_service(link, now, out)
        elif not leads and before[0] is LinkState.LEADING:
            self._step_down(link, now)
        if not leads and primary and primary != link.address:
            self._follow_hint(epoch, primary, now, out)

    def _follow_hint(self, epoch: int, primary: str, now: float, out: list[Effect[W]]) -> None:
        """A replica names a primary we have not asked: dial it next; in a newer epoch at once.

        Two replicas that contradict each other must not send us to and fro, so an older epoch says nothing and the
        same one waits for its turn.
        """
        main = self._main
        last_epoch, last_primary = self._hint_used
        if epoch < max(self.epoch, last_epoch) or (main is not None and main.address == primary and self._leading):
            return
        if (epoch, primary) == (last_epoch, last_primary):
            return
        self._learned = self._hint = primary
        self._hint_used = (epoch, primary)
        if self._probe is not None and self._probe.address == primary:
            self._hint = ""
        elif epoch > last_epoch:
            self._dial_at = now
            if self._probe is not None:
                self._hang_up(self._probe, out)
                self._probe = None

    def _weigh(self, probe: Link, now: float, out: list[Effect[W]]) -> None:
        """A probe told its role: make it `main`, keep it as a watcher, or let it go."""
        main = self._main
        if main is not None and not self._better(probe, main):
            if main.state is LinkState.LEADING:
                probe.deadline = now + WATCH_S
                return
            self._hang_up(probe, out)
            self._lost(probe, "not the primary either", now, out)
            return
        if main is not None:
            self._hang_up(main, out)
        self._main, self._probe = probe, None
        self._suspected = False
        self._registering = False
        if probe.state is LinkState.LEADING:
            self._begin_service(probe, now, out)
        else:
            self._step_down(probe, now)

    def _better(self, probe: Link, main: Link) -> bool:
        if probe.state is LinkState.FOLLOWING:
            return main.state is LinkState.FOLLOWING and probe.epoch > main.epoch
        if main.state is LinkState.FOLLOWING or probe.epoch > main.epoch:
            return True
        return self._suspected and (probe.epoch == main.epoch or probe.incarnation != main.incarnation)

    def _step_down(self, link: Link, now: float) -> None:
        """The replica at hand does not lead: look for who does; it tells us when it learns of one."""
        link.state = LinkState.FOLLOWING
        self._suspected = False
        self._send_again()
        self._dial_at = now
        self._tried = 0

    def _begin_service(self, main: Link, now: float, out: list[Effect[W]]) -> None:
        """`main` leads: from here on it gets everything that has no reply, in order."""
        self.epoch = main.epoch
        self._anonymous = False
        self._blocked_until = self._queries_blocked_until = 0.0
        self._hint = ""
        self._suspected = False
        main.heard_at = now
        self._resend_wait = RESEND_S
        self._resend_at = now + RESEND_S
        self._send_again()
        if not self.session:
            return
        if self.incarnation != main.incarnation:
            self._expire("the service was created anew or restored", out)
        elif main.next_seq is not None and main.hello_session == self.session and main.next_seq < self.window.base:
            self._expire(f"the service expects its message {main.next_seq}, we have {self.window.acked} replies", out)
        main.next_seq = None

    # ---- sessions --------------------------------------------------------------------------------------------

    def _expire(self, why: str, out: list[Effect[W]]) -> None:
        """The session is gone: nobody knows what became of what was sent; go on in a new one."""
        session = self.session
        lost = self.window.restart()
        self._end_session()
        if lost:
            out.append(FailCalls(waiters=lost, code=SessionExpired.code, text=f"session {session}: {why}"))

    def _end_session(self) -> None:
        self.session = 0
        self._nonce = self._draw_nonce()
        self._registering = self._retiring = False
        self._ack_at = None
        self._blocked_until = 0.0

    def _batch_refused(self, link: Link, refused: BatchRefused, now: float, out: list[Effect[W]]) -> None:
        wait = max(refused.retry_after_ms, 1) / 1000 * (1 + 0.5 * self._jitter())
        if refused.code == NotPrimary.code:
            self._step_down(link, now)
        elif refused.session == 0 and refused.first_seq:
            self.queries.rewind(refused.first_seq)
            self._queries_blocked_until = now + wait
        elif refused.session == 0:
            self._registering = False
            self._block(refused, now + wait)
        elif refused.session != self.session:
            return
        elif refused.code == SessionExpired.code:
            self._expire(refused.text, out)
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

    def _block(self, refused: BatchRefused, until: float) -> None:
        self._blocked_until = until
        self._refusal = (refused.code, refused.text)

    # ---- sending ---------------------------------------------------------------------------------------------

    def _pump(self, now: float, out: list[Effect[W]]) -> None:
        """Send what may be sent now."""
        main = self._main
        if main is None:
            return
        owed = self._owed
        if self._blocked_until and now >= self._blocked_until:
            self._blocked_until = 0.0
        parts: list[bytes] = []
        if main.state is LinkState.LEADING:
            if self._retiring and not self.window.in_flight:
                parts.append(self._ack_packet())
                self.window.restart()
                self._end_session()
            if self.session:
                self._pump_calls(now, parts)
            elif not self._registering and not self._blocked_until:
                self._registering = True
                parts.append(packet(Type.REGISTER, self._nonce))
        if len(self.queries):
            self._pump_queries(main, now, parts)
        if not parts:
            return
        out.append(Send(link=main.id, data=parts[0] if len(parts) == 1 else b"".join(parts)))
        if not owed and self._owed:
            main.heard_at = now
            main.pinged = False
            self._resend_wait = RESEND_S
            self._resend_at = now + RESEND_S

    def _pump_calls(self, now: float, parts: list[bytes]) -> None:
        window = self.window
        bytes_max = min(BATCH_BYTES_MAX, self.message_bytes_max)
        acked = window.acked
        while window.unsent and not self._blocked_until and not self._retiring:
            taken = window.take(count_max=BATCH_COUNT_MAX, bytes_max=bytes_max)
            if taken is None:
                break
            first, messages, ends = taken
            count = len(messages)
            run = Run(self.session, first, acked, count)
            parts.append(encode_batch(run, struct.pack(f"<{count}I", *ends), b"".join(messages)))
            self._ack_at = None
        if self._ack_at is not None and now >= self._ack_at:
            parts.append(self._ack_packet())
            self._ack_at = None

    def _ack_packet(self) -> bytes:
        window = self.window
        return encode_batch(Run(self.session, window.next_seq, window.acked, 0), b"", b"")

    def _pump_queries(self, main: Link, now: float, parts: list[bytes]) -> None:
        if self._queries_blocked_until:
            if now < self._queries_blocked_until:
                return
            self._queries_blocked_until = 0.0
        for stale in (False, True) if main.state is LinkState.LEADING else (True,):
            while self.queries.unsent(stale):
                taken = self.queries.take(stale, count_max=QUERY_COUNT_MAX, bytes_max=BATCH_BYTES_MAX)
                if taken is None:
                    break
                parts.append(encode_queries(taken[0], taken[1], stale=stale))

    def check_invariants(self) -> None:
        """Assert what must hold after each event."""
        self.window.check_invariants()
        main, probe = self._main, self._probe
        assert main is None or main.state in (LinkState.FOLLOWING, LinkState.LEADING)
        assert main is None or main is not probe
        assert not self._suspected or self._leading
        assert not self._registering or (self._leading and not self.session)
        assert not self._closed or self.window.in_flight == 0
        assert self.session or self.window.in_flight == 0, "calls are sent in a session only"
