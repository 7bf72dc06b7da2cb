"""Idempotency keys, as an executor asks for them, and a table of them for who is told no message a second time.

Guarantees: a port, and what knows no key. Does not: keep one (`core.tables.keys` does). Imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class KeyTable(Protocol):
    """Idempotency keys of the shard."""

    def __contains__(self, key: bytes) -> bool:
        """Is this key remembered?"""
        ...

    def check(self, key: bytes, request_hashes: Collection[bytes]) -> bytes | None:
        """Give the reply to use instead of running (recorded, or a refusal); None: run it, then `remember`."""
        ...

    def remember(self, key: bytes, request_hash: bytes, reply: bytes) -> None:
        """Keep the reply of a message that ran."""
        ...


class NoKeys:
    """A key table that remembers nothing: every call runs."""

    def __contains__(self, key: bytes) -> bool:
        """See KeyTable: none is."""
        return False

    def check(self, key: bytes, request_hashes: Collection[bytes]) -> bytes | None:
        """Always: run it."""
        del key, request_hashes
        return None

    def remember(self, key: bytes, request_hash: bytes, reply: bytes) -> None:
        """Forget at once."""
