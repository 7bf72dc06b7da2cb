"""Who may speak in a session: the connection that registered it, or a newer one that showed its secret; pure.

A session's id is a small number that anybody can name. So before anything of a batch is looked at (repetitions,
acknowledgements, its place in the order) its connection must be bound to its session:

    REGISTER that is logged first, once confirmed ----------------> bound
    the first packet in a session, where HELLO showed its secret -> bound; an older connection that was ends
    anything else ------------------------------------------------> refused: NotYourSession

A REGISTER that is sent again names a nonce that the log holds, where others can read it. So it binds only the
connection whose HELLO showed the secret; whoever lacks it is told the session's id, which is worth nothing.

A session has one connection, the newest. Connections are numbered in the order in which they were accepted: a packet
that an older one brings late binds nothing. Without this two copies of one client (a cloned machine) would both speak,
and one's message could be answered with the reply to the other's.

Conflicts: bindings belong to a process. A successor knows none, and finds out from the secrets in the HELLOs of the
connections that stand when it takes over.

Guarantees: secrets and nonces are compared in constant time and are never part of a message to people. Does not: know
peers' sessions (`core.primary.receiving` fences those), send. Imports codec and base.
"""

from __future__ import annotations

import enum
import hmac

from deathless.base.safeguards import Safeguards
from deathless.codec.session_proof import named_nonce, nonce_of
from deathless.core.events import Conn
from deathless.core.tables.sessions import Session


class Standing(enum.Enum):
    """What a connection is to a session."""

    OWNER = "bound to it"
    FORMER = "was bound to it, before a newer connection was"
    STRANGER = "showed nothing that binds it"


class SessionOwners:
    """Bindings of the connections of one replica."""

    __slots__ = ("_bound", "_holders", "_names", "_newest_wins", "_nonces", "_owner_only")

    def __init__(self, safeguards: Safeguards) -> None:
        self._owner_only = safeguards.session_owner
        self._newest_wins = safeguards.newest_session_connection
        self._nonces: dict[Conn, bytes] = {}  # connections that showed a secret -> its nonce
        self._names: dict[Conn, str] = {}  # connections that showed a certificate -> the name in it
        self._bound: dict[Conn, int] = {}  # connection -> the one session it speaks in
        self._holders: dict[int, Conn] = {}  # session -> its connection. Invariant: `_bound` the other way round

    def opened(self, conn: Conn, secret: bytes, name: str) -> None:
        """Take a connection in.

        Args:
            conn: a new one, numbered above all before it.
            secret: what its HELLO showed; empty: nothing.
            name: in its certificate; empty: it has none.
        """
        if secret:
            self._nonces[conn] = nonce_of(secret)
        if name:
            self._names[conn] = name

    def lost(self, conn: Conn) -> None:
        """Forget a connection."""
        self._nonces.pop(conn, None)
        self._names.pop(conn, None)
        session = self._bound.pop(conn, None)
        if session is not None and self._holders.get(session) == conn:
            del self._holders[session]

    def logged_nonce(self, conn: Conn, nonce: bytes) -> bytes:
        """Give what is logged for a REGISTER on this connection."""
        return named_nonce(nonce, self._names.get(conn, ""))

    def shows(self, conn: Conn, logged: bytes) -> bool:
        """Did this connection show the secret behind a logged nonce?"""
        nonce = self._nonces.get(conn)
        return nonce is not None and _proves(nonce, self._names.get(conn, ""), logged)

    def standing(self, conn: Conn, session: Session) -> Standing:
        """Say what a connection is to a client's session; one that can be bound is not bound by asking."""
        if self._bound.get(conn) == session.id or not self._owner_only:
            return Standing.OWNER
        if not self.shows(conn, session.nonce):
            return Standing.STRANGER
        holder = self._holders.get(session.id)
        return Standing.FORMER if self._newest_wins and holder is not None and holder > conn else Standing.OWNER

    def bind(self, conn: Conn, session: int) -> Conn | None:
        """Bind a connection to a session, and to no other any more.

        Returns: the older connection that was bound and is to end; None: there was none.
        """
        if self._bound.get(conn) == session:
            return None
        former = self._bound.pop(conn, None)
        if former is not None:
            self._holders.pop(former, None)
        holder = self._holders.get(session)
        self._bound[conn] = session
        self._holders[session] = conn
        if holder is None or not (self._newest_wins and self._owner_only):
            return None
        del self._bound[holder]
        return holder

    def check_invariants(self) -> None:
        """Raise AssertionError when an `Invariant:` above does not hold."""
        if self._newest_wins and self._owner_only:
            assert self._holders == {session: conn for conn, session in self._bound.items()}


def proves(secret: bytes, name: str, logged: bytes) -> bool:
    """Does this secret, shown by a client of that certificate's name, belong to a logged nonce?"""
    return bool(secret) and _proves(nonce_of(secret), name, logged)


def _proves(nonce: bytes, name: str, logged: bytes) -> bool:
    """Compare both ways to log a nonce: a session may be older than the certificate, or than its being asked for."""
    plain = hmac.compare_digest(nonce, logged)
    return hmac.compare_digest(named_nonce(nonce, name), logged) or plain
