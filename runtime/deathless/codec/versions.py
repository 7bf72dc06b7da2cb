"""Which versions of the protocol a build speaks, and which of them two ends use.

    HELLO    the oldest and the newest version that whoever connects speaks
    WELCOME  the highest that both speak; REFUSED (DL3051) where there is none

A build before ranges says one version alone, which is its oldest and its newest, and refuses every other. So `version`
stays the oldest that is spoken for as long as that one is. A control port answers no HELLO: supervisors, and tools
there, send what the oldest version of their own range has.

There is one version so far, so no end keeps the one of a connection: whoever answers HELLO (`engine.replica.intake`,
`drivers.host`) names it in WELCOME, and whoever said HELLO (`core.client.machine`, `shell.net.connections`) only looks
whether it speaks that. A second version has to be kept at both ends, for whatever reads and writes packets.

Guarantees: two ends that have a version in common agree, whichever is newer, and on the same one. Does not: say what a
version has that the one before it had not (`docs/formats/wire.md` does).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from deathless.base.errors import NoCommonVersion
from deathless.codec.wire import Hello


class Versions(NamedTuple):
    """All protocol versions from the first to the last, both included."""

    oldest: int
    newest: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.oldest <= version <= self.newest

    def __str__(self) -> str:
        return str(self.newest) if self.oldest == self.newest else f"{self.oldest} to {self.newest}"


SPOKEN: Final = Versions(1, 1)


def spoken() -> Versions:
    """What this build speaks."""
    return SPOKEN


def say_hello(kind: str, service: str, name: str, token: str = "", **fields: int | bytes | str) -> Hello:
    """Make a HELLO that says what this build speaks.

    Args:
        kind: client, peer, follower, supervisor or tool.
        service: that is meant.
        name: ours.
        token: empty: none.
        fields: further ones of `Hello`.
    """
    versions = spoken()
    hello = Hello(versions.oldest, kind, service, name, token, newest=versions.newest)
    return msgspec.structs.replace(hello, **fields) if fields else hello


def agreed(hello: Hello) -> int:
    """Give the version of a connection whose other end said this: the highest that both speak.

    Raises: NoCommonVersion.
    """
    theirs, ours = Versions(hello.version, max(hello.newest, hello.version)), spoken()
    version = min(theirs.newest, ours.newest)
    if version < max(theirs.oldest, ours.oldest):
        older = "it" if theirs.newest < ours.oldest else "this replica"
        raise NoCommonVersion(
            f"{hello.kind} {hello.name!r} speaks protocol version {theirs}, this replica {ours}: {older} is older"
        )
    return version


def check_welcome(version: int) -> None:
    """Look whether an answer to our HELLO names a version that we speak. Raises: NoCommonVersion."""
    if version not in spoken():
        raise NoCommonVersion(f"WELCOME names protocol version {version}, and version {spoken()} was offered")
