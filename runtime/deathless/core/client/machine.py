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
    DIALING       GREETING on LinkOpened (HELLO is sent)    greet limit, doubling while nobody answers
    GREETING      LEADING | FOLLOWING on WELCOME            the same limit
    FOLLOWING     LEADING by ROLE                           as probe, or silent while owing an answer: WATCH_S
    LEADING       FOLLOWING by ROLE or DL1001               PING_S, SUSPECT_S of silence while owing an answer

Silence. A frozen primary sends no FIN. Owed something and hearing nothing for PING_S we ping, for SUSPECT_S we ask
another replica. What is said to the primary, and when it is said again, is `core.client.session`; whom to dial, and
when, `core.client.candidates`; links are looked after here.

Nothing is given up silently (I4): without an error to tell, a call waits for ever; a caller's own time limit is the
shell's. Guarantees: replies exactly once per call; calls of one client reach the log in the order of submission; no
clock, no chance: `now` (seconds, monotonic) comes with each event, jitter and secrets through the constructor; equal
events give equal effects. Does not: IO, decode results. Imports codec and base.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, assert_never

from deathless.base.errors import (
    Closed,
    CorruptFrame,
    DataCorrupt,
    ForeignDirectory,
    Invalid,
    NoCommonVersion,
    SessionExpired,
    TooLarge,
)
from deathless.codec.versions import check_welcome, say_hello
from deathless.codec.wire import (
    Refused,
    RoleAt,
    Type,
    Welcome,
    decode_struct,
    packet,
    struct_packet,
)
from deathless.core.client.candidates import Candidates
from deathless.core.client.events import (
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
    ResultsWanted,
    Send,
    TimerFired,
    error_of,
)
from deathless.core.client.link import (
    PING_S,
    PRIMARY_ROLE,
    SUSPECT_S,
    WATCH_S,
    WINDOW_BYTES_MAX,
    WINDOW_MAX,
    Link,
    LinkState,
    State,
)
from deathless.core.client.results import ResultWindow
from deathless.core.client.session import ClientSession
from deathless.core.client.window import CallWindow, QueryWindow

W = TypeVar("W")


class ClientMachine(Generic[W]):
    """One client of one service.

    Args:
        service: its name.
        name: ours, for the service's operators.
        token: gives what each connection shows, empty: nothing.
        jitter: gives a number in [0, 1) per call.
        secret: gives 16 fresh random bytes per call; a session's secret, which nobody else may learn.
        window_max: calls without a reply, at most.
        window_bytes_max: their bytes, at most.
        short_way: a call that is alone may take it; False: a test tries how it goes without.
    """

    def __init__(
        self,
        *,
        service: str,
        name: str,
        token: Callable[[], str] = str,
        jitter: Callable[[], float],
        secret: Callable[[], bytes],
        window_max: int = WINDOW_MAX,
        window_bytes_max: int = WINDOW_BYTES_MAX,
        short_way: bool = True,
    ) -> None:
        self.service = service
        self.name = name
        self.epoch = 0  # highest epoch we were served in
        self.last_problem = ""  # why the last link failed, for people
        self._token = token
        self._session: ClientSession[W] = ClientSession(
            jitter=jitter, secret=secret, window_max=window_max, window_bytes_max=window_bytes_max
        )
        self._candidates = Candidates(jitter)
        self._main: Link | None = None
        self._probe: Link | None = None
        self._last_link = 0
        self._time_told: tuple[int, float] | None = None  # the service's time, and when a primary told it
        self._suspected = False  # `main` leads, owes, and is silent
        self._anonymous = False  # HELLO names neither session nor incarnation: one that did was refused
        self._closed = False
        self._short = short_way

    # ---- what others may see ---------------------------------------------------------------------------------

    @property
    def message_bytes_max(self) -> int:
        """Longest message that the service takes, as far as it has told."""
        return self._session.message_bytes_max

    @property
    def state(self) -> State:
        """Where the client stands."""
        if self._closed:
            return State.CLOSED
        if not self._leading:
            return State.SEEKING
        return State.READY if self._session.id else State.REGISTERING

    @property
    def _leading(self) -> bool:
        return self._main is not None and self._main.state is LinkState.LEADING

    @property
    def connected(self) -> str:
        """Address of the replica at hand; empty: none."""
        return self._main.address if self._main is not None else ""

    def time_us(self, now: float) -> int | None:
        """Give the service's logical time, microseconds since 1970, as the last primary told it; None: none did yet."""
        if self._time_told is None:
            return None
        told_us, at = self._time_told
        return told_us + round((now - at) * 1e6)

    def _hear_time(self, time_us: int, now: float) -> None:
        if time_us:
            self._time_told = time_us, now

    @property
    def session(self) -> int:
        """Id of our session; 0: none yet."""
        return self._session.id

    @property
    def incarnation(self) -> int:
        """Of the service that our session is with; 0: not known yet."""
        return self._session.incarnation

    @property
    def window(self) -> CallWindow[W]:
        """Calls without a reply; to be read only."""
        return self._session.window

    @property
    def queries(self) -> QueryWindow[W]:
        """Queries without an answer; to be read only."""
        return self._session.queries

    @property
    def results(self) -> ResultWindow[W]:
        """Results that are waited for; to be read only."""
        return self._session.results

    def refusal(self, now: float) -> tuple[str, str, float] | None:
        """(code, text, seconds to wait) while the service admits nothing; None: it does."""
        until = self._session.blocked_until
        return (*self._session.refusal, until - now) if now < until else None

    @property
    def unregistered(self) -> tuple[str, str] | None:
        """(code, text) why the primary at hand registered no session; None: it did, or gave no reason."""
        return self._session.unregistered

    @property
    def deadline(self) -> float | None:
        """When TimerFired is due, by the clock of `now`; None: nothing is waited for."""
        if self._closed:
            return None
        main, session = self._main, self._session
        leading = self._leading
        due = math.inf
        if self._probe is not None:
            due = self._probe.deadline
        elif not leading or self._suspected:
            due = self._candidates.dial_at
        if main is not None:
            owed = session.owed
            due = min(due, session.deadline(leading=leading, owed=owed))
            if owed and not self._suspected:
                silent_s = PING_S if not main.pinged else SUSPECT_S if leading else WATCH_S
                due = min(due, main.heard_at + (silent_s + session.patience_s))
        return None if due == math.inf else due

    # ---- events ----------------------------------------------------------------------------------------------

    def handle(self, event: Event[W], now: float) -> list[Effect[W]]:
        """Take one event in; give what must be done, in order."""
        out: list[Effect[W]] = []
        if self._closed:
            if isinstance(event, CallsSubmitted | QueriesSubmitted | ResultsWanted):
                out.append(FailCalls(waiters=event.waiters, code=Closed.code, text="the client is closed"))
            return out
        match event:
            case BytesReceived(link=link, data=data):
                if (answered := self.answered_alone(link, data, now)) is not None:
                    return [CompleteCalls(waiters=[answered[0]], replies=[answered[1]])]
                self._bytes_received(self._link(link), data, now, out)
            case CallsSubmitted(messages=messages, waiters=waiters):
                if len(messages) == 1 and (sent := self.call_alone(messages[0], waiters[0], now)) is not None:
                    return [Send(link=sent[0], data=sent[1])]
                self._session.calls_submitted(event, out)
            case QueriesSubmitted():
                self._session.queries_submitted(event, out)
            case ResultsWanted(invocations=invocations, waiters=waiters):
                self._session.results.submit(invocations, waiters)
            case TimerFired():
                self._timer_fired(now, out)
            case LinkOpened(link=link):
                self._link_opened(self._link(link), out)
            case LinkLost(link=link, reason=reason):
                self._lost(self._link(link), reason, now, out)
            case AddressesFound(addresses=addresses):
                self._candidates.found(addresses, now)
                self._leave_unknown(out)
            case CloseRequested():
                self._close(out)
                return out
            case _:
                assert_never(event)
        self._seek(now, out)
        self._pump(now, out)
        return out

    @property
    def _serving(self) -> Link | None:
        """The link to a primary that is in no doubt, with nobody else being asked; None: there is none."""
        main = self._main
        if main is None or main.state is not LinkState.LEADING:
            return None
        return None if self._closed or self._suspected or self._probe is not None or not self._short else main

    def call_alone(self, message: bytes, waiter: W, now: float) -> tuple[LinkId, bytes] | None:
        """Send one call at once where nothing else is to be done: what `CallsSubmitted` leads to, in one step.

        `handle` does the same; who calls this needs no event. Returns: the link, and what to send; None: it is not so,
        and nothing was done.
        """
        main = self._serving
        if main is None:
            return None
        data = self._session.call_alone(message, waiter, now)
        if not data:
            return None
        main.heard_at = now  # until now it owed us nothing
        main.pinged = False
        return main.id, data

    def answered_alone(self, link: LinkId, data: bytes, now: float) -> tuple[W, bytes] | None:
        """Take in the reply to the only call in flight: what `BytesReceived` leads to, in one step.

        `handle` does the same, as above. Returns: who waits for it, and the reply; None: it is something else, and
        nothing was done.
        """
        main = self._serving
        if main is None or main.id != link or not main.reader.empty:
            return None
        answered = self._session.answered_alone(data, now)
        if answered is not None:
            main.heard_at = now
            main.pinged = False
        return answered

    def withdraw(self, waiter: W) -> bool:
        """Take a call that was never sent, or a query, back. False: the call was sent, it stays."""
        return self._session.withdraw(waiter)

    def withdraw_many(self, waiters: Sequence[W]) -> list[W]:
        """Take calls back that were never sent; gives their waiters. The others stay."""
        return self._session.window.withdraw_many(waiters)

    def _link(self, link: LinkId) -> Link | None:
        for known in (self._main, self._probe):
            if known is not None and known.id == link:
                return known
        return None

    def _timer_fired(self, now: float, out: list[Effect[W]]) -> None:
        probe, main = self._probe, self._main
        if probe is not None and now >= probe.deadline:
            if probe.state in (LinkState.DIALING, LinkState.GREETING):
                self._candidates.unanswered(probe.address)
            self._drop(probe, f"no answer ({probe.state.value})", now, out)
        if main is None or not self._session.owed:
            return
        patience_s = self._session.patience_s
        # The same sums as in `deadline`: a difference could round to just below and fire for ever.
        if now >= main.heard_at + (PING_S + patience_s) and not main.pinged:
            main.pinged = True
            out.append(Send(link=main.id, data=packet(Type.PING)))
        if self._leading:
            if now >= main.heard_at + (SUSPECT_S + patience_s) and not self._suspected:
                self._suspected = True
                self._candidates.succeeded()
                self._candidates.begin(now)
                out.append(Resolve())
        elif now >= main.heard_at + (WATCH_S + patience_s):
            self._drop(main, "silent", now, out)
            return
        self._session.timer_fired(main.heard_at, now)

    def _close(self, out: list[Effect[W]]) -> None:
        words = self._session.last_words()
        if self._main is not None and self._leading and words:
            out.append(Send(link=self._main.id, data=words))
        out.extend(HangUp(link=link.id) for link in (self._main, self._probe) if link is not None)
        self._closed = True
        self._session.close(out)

    # ---- links -----------------------------------------------------------------------------------------------

    def _seek(self, now: float, out: list[Effect[W]]) -> None:
        """Keep the probe in step with whether we look for a primary."""
        if self._leading and not self._suspected:
            if self._probe is not None:
                out.append(HangUp(link=self._probe.id))
                self._probe = None
            return
        if self._probe is not None or now < self._candidates.dial_at:
            return
        address = self._candidates.next(self.connected, suspected=self._suspected)
        if not address:
            self._missed(now, out, whole_round=True)
            return
        self._last_link += 1
        self._probe = Link(LinkId(self._last_link), address, now + self._candidates.greet_limit_s)
        out.append(Dial(link=self._probe.id, address=address))

    def _leave_unknown(self, out: list[Effect[W]]) -> None:
        """Give up a dial to an address that is no replica's any more: nobody may be there to say no."""
        probe = self._probe
        if probe is not None and probe.state is LinkState.DIALING and probe.address not in self._candidates.known:
            out.append(HangUp(link=probe.id))
            self._probe = None

    def _missed(self, now: float, out: list[Effect[W]], *, whole_round: bool = False) -> None:
        """A candidate brought nothing. When all refuse us for good (token, service), say so to what was never sent."""
        at_hand = self._main is not None
        waiting = at_hand and not self._leading
        if self._candidates.missed(now, at_hand=at_hand, waiting=waiting, whole_round=whole_round):
            out.append(Resolve())
            refusal = self._candidates.refusal()
            if refusal is not None:
                self._session.fail_unsent(*refusal, out)

    def _drop(self, link: Link, reason: str, now: float, out: list[Effect[W]]) -> None:
        """End a link ourselves."""
        out.append(HangUp(link=link.id))
        self._lost(link, reason, now, out)

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
        self._session.registering = False
        self._candidates.lost(link.address)
        if self._session.progressed:
            self._candidates.succeeded()
            self._candidates.begin(now)
            out.append(Resolve())
        else:
            self._missed(now, out, whole_round=True)
        self._session.progressed = False
        probe = self._probe
        if probe is not None and probe.state is LinkState.FOLLOWING:
            self._main, self._probe = probe, None

    def _link_opened(self, link: Link | None, out: list[Effect[W]]) -> None:
        if link is None or link.state is not LinkState.DIALING:
            return
        link.state = LinkState.GREETING
        session, incarnation = (0, 0) if self._anonymous else (self._session.id, self._session.incarnation)
        link.hello_session = session
        link.named = bool(session or incarnation)
        link.secret = self._session.secret
        hello = say_hello(
            "client",
            self.service,
            self.name,
            self._token(),
            session=session,
            incarnation=incarnation,
            secret=link.secret,
        )
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
        except (TooLarge, CorruptFrame, NoCommonVersion) as error:
            self._drop(link, error.message, now, out)

    # ---- packets ---------------------------------------------------------------------------------------------

    def _packet(self, link: Link, kind: int, body: bytes, now: float, out: list[Effect[W]]) -> None:
        if link.state in (LinkState.DIALING, LinkState.GREETING):
            if kind == Type.WELCOME:
                self._welcomed(link, decode_struct(Welcome, body), now, out)
            elif kind == Type.REFUSED:
                self._refused(link, decode_struct(Refused, body), now, out)
            else:
                raise CorruptFrame(f"packet of type {kind} before WELCOME")
        elif kind == Type.ROLE:
            role = decode_struct(RoleAt, body)
            self._hear_time(role.time_us, now)
            self._role_told(link, role.role, role.epoch, role.primary, now, out)
        elif kind == Type.PING:
            out.append(Send(link=link.id, data=packet(Type.PONG)))
        elif link is self._main and not self._session.packet(link, kind, body, now, out):
            self._step_down(link, now, out)

    def _welcomed(self, link: Link, welcome: Welcome, now: float, out: list[Effect[W]]) -> None:
        if welcome.service != self.service:
            raise CorruptFrame(f"this is service {welcome.service}, not {self.service}")
        check_welcome(welcome.version)
        self._candidates.welcomed(link.address)
        link.incarnation = welcome.incarnation
        link.state = LinkState.FOLLOWING
        if welcome.role == PRIMARY_ROLE:
            link.next_seq = welcome.next_seq
            self._hear_time(welcome.time_us, now)
        self._session.limits_told(welcome.message_bytes_max, welcome.window_max, out)
        self._role_told(link, welcome.role, welcome.epoch, welcome.primary, now, out)

    def _refused(self, link: Link, refused: Refused, now: float, out: list[Effect[W]]) -> None:
        """HELLO was refused: for good (token, service), because of the session it named, or for now."""
        if link.named and refused.code in (SessionExpired.code, ForeignDirectory.code):
            # Only the primary can say that a session is gone; come back without naming it and see who leads.
            self._anonymous = True
        elif isinstance(error_of(refused.code, ""), Invalid | DataCorrupt):
            self._candidates.refused(link.address, refused.code, refused.text)
        self._drop(link, f"{refused.code} {refused.text}", now, out)

    def _role_told(self, link: Link, role: str, epoch: int, primary: str, now: float, out: list[Effect[W]]) -> None:
        before = (link.state, link.epoch)
        known = self._session.incarnation in (0, link.incarnation)
        leads = role == PRIMARY_ROLE and (epoch >= self.epoch or not known)
        link.state = LinkState.LEADING if leads else LinkState.FOLLOWING
        link.epoch = epoch
        if link is self._probe:
            self._weigh(link, now, out)
        elif leads and before != (link.state, epoch):
            self._begin_service(link, now, out)
        elif not leads and before[0] is LinkState.LEADING:
            self._step_down(link, now, out)
        if not leads and primary and primary != link.address:
            self._follow_hint(epoch, primary, now, out)

    def _follow_hint(self, epoch: int, primary: str, now: float, out: list[Effect[W]]) -> None:
        """A replica names a primary we have not asked: dial it next, if it is newer instead of whom we dial now."""
        if epoch < self.epoch or (self._leading and self.connected == primary):
            return
        at_once = self._candidates.hint(epoch, primary, now)
        if self._probe is not None and self._probe.address == primary:
            self._candidates.drop_hint()
        elif at_once and self._probe is not None:
            out.append(HangUp(link=self._probe.id))
            self._probe = None

    def _weigh(self, probe: Link, now: float, out: list[Effect[W]]) -> None:
        """A probe told its role: make it `main`, keep it as a watcher, or let it go."""
        main = self._main
        if main is not None and not probe.outdoes(main, suspected=self._suspected):
            if main.state is LinkState.LEADING:
                probe.deadline = now + WATCH_S
            else:
                self._drop(probe, "not the primary either", now, out)
            return
        if main is not None:
            out.append(HangUp(link=main.id))
        self._main, self._probe = probe, None
        self._suspected = False
        self._session.registering = False
        if probe.state is LinkState.LEADING:
            self._begin_service(probe, now, out)
        else:
            self._step_down(probe, now, out)

    def _step_down(self, link: Link, now: float, out: list[Effect[W]]) -> None:
        """The replica at hand does not lead: look for who does; it tells us when it learns of one."""
        link.state = LinkState.FOLLOWING
        self._suspected = False
        self._session.send_again()
        self._candidates.begin(now)
        out.append(Resolve())

    def _begin_service(self, main: Link, now: float, out: list[Effect[W]]) -> None:
        """`main` leads: from here on it gets everything that has no reply, in order."""
        if self._session.id and main.secret != self._session.secret:
            self._drop(main, "connected before our session was registered, so it does not know us", now, out)
            return
        self.epoch = main.epoch
        self._anonymous = False
        self._suspected = False
        self._candidates.drop_hint()
        self._candidates.leads(main.address)
        main.heard_at = now
        self._session.begin_service(main, now, out)

    def _pump(self, now: float, out: list[Effect[W]]) -> None:
        """Send what may be sent now."""
        main, session = self._main, self._session
        if main is None or not session.has_word(now):
            return
        patience_s = session.patience_s if session.owed else math.inf
        parts = session.pump(main.state, now)
        if not parts:
            return
        out.append(Send(link=main.id, data=parts[0] if len(parts) == 1 else b"".join(parts)))
        if session.owed and session.patience_s < patience_s:  # until now it owed us nothing, or only results
            main.heard_at = now
            main.pinged = False
            session.be_patient(now)

    def check_invariants(self) -> None:
        """Assert what must hold after each event."""
        main, probe = self._main, self._probe
        self._session.check_invariants()
        assert main is None or main.state in (LinkState.FOLLOWING, LinkState.LEADING)
        assert main is None or main is not probe
        assert not self._suspected or self._leading
        assert not self._session.registering or self._leading
        assert not self._closed or self.window.in_flight == 0
