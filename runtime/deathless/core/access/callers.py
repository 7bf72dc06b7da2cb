"""Who calls: what is decided about callers where `ingress.authentication` asks them to prove who they are.

    type    a caller proves who it is by                                       its name
    Token   one of the tokens in a Secret or folder, a file for each caller    the file's
    MTLS    a certificate of the authority that the port trusts                its URI, else its common name
    OIDC    a token that the issuer has signed for one of our audiences        the value of the claim named

Callers are told from the service's own processes, from tools and from peers: these show `spec.tokenFile`, or a
certificate that names them, as they do where callers prove nothing. So at the client port:

    HELLO shows the service's own token                        -> as ever (the table of `core.access.authorisation`)
    its certificate names a replica or operator of this service -> likewise
    it says HELLO as peer, tool, ... and certificates name      -> likewise
    it says HELLO as client                                     -> a caller: see above
    anything else                                               -> refused

A caller's name is part of what binds a session (`core.primary.session_owners`), with the type in front: a token's
`alice` is not a certificate's.

Guarantees: tokens are compared by their hashes, each of them, in constant time; no token is part of a message. Does
not: read files, fetch keys, know the time. Imports base.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from deathless.base.errors import CallerNotAllowed, NotAuthenticated
from deathless.base.identities import Identity
from deathless.base.limits import CALLER_TOKEN_BYTES_MAX, CALLER_TOKENS_MAX

TOKEN_BYTES_MIN: Final = 16
_OURS: Final = frozenset({"replica", "operator"})


class Way(enum.Enum):
    """How a connection to the client port is judged."""

    TABLE = "as ever: by the service's own token, or by the table of certificates"
    CALLER = "as a caller"
    NONE = "not at all: it is refused"


class Caller(NamedTuple):
    """Who has proved who it is."""

    name: str  # as `allowedCallers` writes it
    full: str  # with how it was proved: what binds a session
    until_s: float = float("inf")  # since 1970; then it must prove it again


class KeysWanted(Exception):
    """A token can't be judged before the keys of its issuer were fetched; then it is judged again."""


class TokenTable:
    """The tokens that are good now.

    Args:
        files: by the caller's name: its tokens, one in each line.

    Attributes:
        problems: what is wrong with them, without a word of theirs.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.problems: list[str] = []
        self._known: list[tuple[bytes, str]] = []  # hash of a token and whose it is
        for name in sorted(files):
            for line in files[name].split(b"\n"):
                self._add(name, line.strip())

    def _add(self, name: str, token: bytes) -> None:
        if not token:
            return
        if not TOKEN_BYTES_MIN <= len(token) <= CALLER_TOKEN_BYTES_MAX:
            self.problems.append(f"a token of {name!r} has not {TOKEN_BYTES_MIN} to {CALLER_TOKEN_BYTES_MAX} bytes")
        elif len(self._known) == CALLER_TOKENS_MAX:
            self.problems.append(f"there are more than {CALLER_TOKENS_MAX} tokens; those of {name!r} are left out")
        else:
            self._known.append((_hash(token), name))

    def find(self, shown: bytes) -> str | None:
        """Give whose token this is; None: nobody's. Takes as long whoever's it is."""
        hashed, found = _hash(shown), None
        for known, name in self._known:
            if hmac.compare_digest(hashed, known):
                found = name
        return found

    def __len__(self) -> int:
        return len(self._known)


def check_size(shown: bytes) -> None:
    """Look whether a token came, and is none that nobody shall be kept busy with. Raises: NotAuthenticated."""
    if not shown:
        raise NotAuthenticated("no token came", remedy="show one: `Authorization: Bearer ...`, or `Client(token=...)`")
    if len(shown) > CALLER_TOKEN_BYTES_MAX:
        raise NotAuthenticated(f"the token has more than {CALLER_TOKEN_BYTES_MAX} bytes")


def check_allowed(name: str, allowed: Sequence[str]) -> None:
    """Look whether a caller that is known may call. Raises: CallerNotAllowed."""
    if allowed and name not in allowed:
        raise CallerNotAllowed(f"{name!r} is not among those who may call this service")


def way_in(kind: str, *, own: Identity | None, shown: Identity | None, token_known: bool) -> Way:
    """Say how a connection to the client port is judged.

    Args:
        kind: as its HELLO says.
        own: whom the port's own certificate names; None: nobody.
        shown: whom the certificate names that it showed; None: nobody, or it showed none.
        token_known: it showed the service's own token.
    """
    if token_known:
        return Way.TABLE
    if own is not None:
        ours = shown is not None and shown.is_of_service(own) and shown.role in _OURS
        if ours or kind != "client":
            return Way.TABLE
    return Way.CALLER if kind == "client" else Way.NONE


def _hash(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
