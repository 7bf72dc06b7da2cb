"""Shards: into which log of its service a key belongs, and how a shard is named among the others.

Why here: handlers, clients, ingresses, tools and other services each compute the shard of a key by themselves, before
anybody is asked, so all must agree for ever. The rule and golden values stand in docs/formats/shards.md.

    one shard     name `bank`        directory DIRECTORY               invocation `512`
    of several    name `bank/1/2`    directory DIRECTORY/shards/1      invocation `1-512`

A shard's name says which one it is and of how many. It is what it is called in its record, in its lock store and in
every handshake, so whoever reckons with another number of shards is refused there, whoever it is. Names of services
hold no slash, so no shard is called as a service is.

Guarantees: with one shard every name is the service's own and every key is in shard 0. Does not: look at files.
Imports errors only.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from deathless.base.errors import InvalidArgument

SHARDS_MAX: Final = 64
FOLDER: Final = "shards"  # of a service with several, in its directory
_INVOCATION: Final = re.compile(r"(?:(0|[1-9][0-9]{0,2})-)?([1-9][0-9]{0,18})")


def shard_of(key: bytes, shards: int) -> int:
    """Give the shard that a key lives on.

    Keys with the same `{tag}` share a shard: where a `{` is followed by a `}` and there is something in between, that
    alone counts, of the first `{` and the first `}` behind it.

    Args:
        key: UTF-8.
        shards: how many there are, above 0.

    Returns: the first 8 bytes of BLAKE2b-64, little-endian, modulo `shards`.
    """
    if shards == 1:
        return 0
    tag = tag_of(key)
    return int.from_bytes(hashlib.blake2b(key if tag is None else tag, digest_size=8).digest(), "little") % shards


def tag_of(key: bytes) -> bytes | None:
    """Give the part of a key that alone says on which shard it lives, without its braces; None: all of it does."""
    start = key.find(b"{") + 1
    if start and (end := key.find(b"}", start)) > start:
        return key[start:end]
    return None


def shard_name(service: str, shard: int, shards: int) -> str:
    """Give what a shard is called in records and handshakes: the service's name where it is the only one."""
    return service if shards == 1 else f"{service}/{shard}/{shards}"


def shard_directory(directory: str, shard: int, shards: int) -> str:
    """Give the folder of a shard in its service's directory."""
    return directory if shards == 1 else f"{directory.rstrip('/')}/{FOLDER}/{shard}"


def service_directory(directory: str, shards: int) -> str:
    """Give the directory of the service whose shard has this folder."""
    return directory if shards == 1 else directory.rstrip("/").rsplit("/", 2)[0]


def show_invocation(invocation: int, shard: int, shards: int) -> str:
    """Give the id of an invocation as callers and operators read it: `512`, or `1-512` of shard 1."""
    return str(invocation) if shards == 1 else f"{shard}-{invocation}"


def read_invocation(text: str, shards: int) -> tuple[int, int]:
    """Give (shard, invocation) of what `show_invocation` gave.

    Raises: InvalidArgument when it is none, or of no shard of this service.
    """
    found = _INVOCATION.fullmatch(text)
    if found is None or (found[1] is None) != (shards == 1):
        what = "a number above 0" if shards == 1 else "SHARD-NUMBER, like 1-512: this service has several shards"
        raise InvalidArgument(f"{text[:100]!r} is no id of an invocation; it is {what}")
    return checked_shard(int(found[1] or 0), shards), int(found[2])


def checked_shard(shard: int, shards: int) -> int:
    """Give the shard back if there is such a one. Raises: InvalidArgument."""
    if not 0 <= shard < shards:
        last = f"0 to {shards - 1}" if shards > 1 else "0 alone"
        raise InvalidArgument(f"there is no shard {shard}: this service has {last}")
    return shard


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """What a shard's turns know of shards: its own place, and the numbers of others."""

    shard: int = 0  # ours. Invariant: below `shards`
    shards: int = 1  # of our service
    peers: Mapping[str, int] = field(default_factory=dict)  # shards of other services; 1 where nothing is said

    def owns(self, key: bytes) -> bool:
        """Does this key live here?"""
        return self.shards == 1 or shard_of(key, self.shards) == self.shard

    def place(self, service: str, key: bytes) -> int:
        """Give the shard of another service that a key lives on."""
        return shard_of(key, self.peers.get(service, 1))

    def parts(self) -> dict[str, str]:
        """Give what of this the results of turns depend on, by name: part of the fingerprint (I6)."""
        found = {f"shards of {name}": str(count) for name, count in self.peers.items() if count > 1}
        return found | ({"shards": str(self.shards)} if self.shards > 1 else {})
