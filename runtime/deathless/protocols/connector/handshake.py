"""Who may speak: the first frame of a connection, at the ends that are connected to.

Guarantees: versions are compared exactly ("0.0.1" for sources, "v0.0.1" for sinks, both by default); a cookie is
compared in a time that does not tell how much of it is right, and no error repeats one. Does not: encrypt, or prove
more than the cookie does; TLS is the connection's. Imports base only.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection

from deathless.base.errors import DeathlessError, NoCommonVersion, Unauthorized
from deathless.protocols.connector.fields import SHORT_BYTES_MAX
from deathless.protocols.connector.frames import Error, Hello, encode


def check_hello(hello: Hello, *, versions: Collection[str], cookie: bytes) -> None:
    """Do nothing if this sender may speak.

    Args:
        hello: what it said.
        versions: that are accepted.
        cookie: that is expected; empty: whoever shows one is refused as well, since it may mean another cluster.

    Raises: NoCommonVersion, Unauthorized; the machine answers ERROR.
    """
    if hello.version not in versions:
        accepted = " or ".join(sorted(versions))
        raise NoCommonVersion(f"version {hello.version[:40]!r}", remedy=f"speak {accepted}")
    if not hmac.compare_digest(hello.cookie, cookie):
        what = "the cookie is wrong" if cookie else "a cookie was shown where none is expected"
        raise Unauthorized(what, remedy="give both ends the same cookie")


def error_frame(error: DeathlessError) -> bytes:
    """Give the ERROR frame that tells the other end: code, what happened, what to do."""
    text = str(error).encode(errors="replace")[:SHORT_BYTES_MAX].decode(errors="ignore")
    return encode(Error(text))
