"""A primary's connections to the services that it sends to; the twin of the shell's.

    dial -> HELLO (kind `peer`) -> PEER_HELLO -> PEER_WELCOME = ready
     ^------- lost, refused, not the primary: made again once somebody leads there ----'

Guarantees: at most one connection per target, made again for ever (I4). A service that the environment does not have is
an error of the test. Does not: read what is sent, keep time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deathless.codec.peer_messages import Target
from deathless.codec.versions import say_hello
from deathless.codec.wire import PeerWelcome, Role, Type, Welcome, decode_peer_commit, decode_struct
from deathless.core import events as ev
from deathless.testing.links import Packets, Talk

if TYPE_CHECKING:
    from deathless.testing.primary import Primary


class _Link:
    """One target."""

    __slots__ = ("ready", "talk", "target")

    def __init__(self, target: Target) -> None:
        self.target = target
        self.talk: Talk | None = None  # None: nobody leads there
        self.ready = False


class PeerLinks:
    """All targets of one primary."""

    def __init__(self, primary: Primary) -> None:
        self._primary = primary
        self._links: dict[Target, _Link] = {}

    def dial(self, target: Target) -> None:
        """See Peers. Raises: InvalidUse for a service that is not there."""
        if target not in self._links:
            self._primary.served.check_peer(target)
            link = self._links[target] = _Link(target)
            self._connect(link)

    def send(self, target: Target, data: bytes) -> None:
        """See Peers."""
        link = self._links.get(target)
        if link is not None and link.ready and link.talk is not None:
            reached = self._primary.served.reached
            reached("send", target.service)
            link.talk.send(data)
            reached("sent", target.service)

    def drop(self, target: Target) -> None:
        """See Peers."""
        link = self._links.pop(target, None)
        if link is not None and link.talk is not None:
            link.talk.close()

    def now_leads(self, service: str) -> None:
        """Somebody leads a service: connect to it, if we want to."""
        for link in self._links.values():
            if link.target.service == service and link.talk is None:
                self._connect(link)

    def _connect(self, link: _Link) -> None:
        served = self._primary.served
        hello = say_hello("peer", link.target.service, served.name)
        talk = link.talk = Talk(
            served.links,
            link.target.service,
            self._primary.life,
            hello,
            received=lambda packets: self._received(link, talk, packets),
            lost=lambda: self._lost(link, talk),
        )

    def _current(self, link: _Link, talk: Talk) -> bool:
        return self._links.get(link.target) is link and link.talk is talk

    def _lost(self, link: _Link, talk: Talk) -> None:
        if self._current(link, talk):
            link.talk = None
            if link.ready:
                link.ready = False
                self._primary.post(ev.PeerLost(link.target))

    def _received(self, link: _Link, talk: Talk, packets: Packets) -> None:
        for kind, body in packets:
            if not self._current(link, talk):
                return
            if not self._taken(link, talk, kind, body):
                talk.close()
                self._lost(link, talk)

    def _taken(self, link: _Link, talk: Talk, kind: int, body: bytes) -> bool:
        """Take a packet; False ends the connection."""
        match kind:
            case Type.PEER_COMMIT:
                if link.ready:
                    self._primary.post(ev.PeerCommitted(link.target, decode_peer_commit(body)[1]))
            case Type.PEER_WELCOME:
                told = decode_struct(PeerWelcome, body)
                link.ready = True
                self._primary.post(ev.PeerReady(link.target, told.session, told.next_position, told.history))
            case Type.WELCOME:
                if decode_struct(Welcome, body).role != "primary":
                    return False
                talk.send(self._primary.introduction(link.target))
            case Type.ROLE:
                return decode_struct(Role, body).role == "primary"
            case Type.REFUSED | Type.PEER_REFUSED | Type.BATCH_REFUSED:
                return False
            case _:
                pass
        return True
