"""Tells whether two calls under one idempotency key are the same request: same handler, same key, same arguments.

Arguments are compared by what they mean to the handler, not by their bytes: they are decoded by its declared types
and encoded again with sorted maps and sets. So the order of a map's keys or of a set's items, a default that is left
out or written out, and 1 for a `float` make no difference, whatever process, language and front door a call comes
through. Arguments in a form of an older version are encoded by the types of that version.

What has no meaning is compared by its bytes: a handler that is not there, and arguments that can't be decoded. Builds
before this one compared bytes alone, and what they recorded is still known again by its bytes.

Guarantees: equal requests give equal hashes in every process. Does not: keep anything; `core.tables.keys` does. Imports
the codec and its own package.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from deathless.codec.messages import HEADER, HEADER_BYTES
from deathless.codec.snapshot import REQUEST_HASH_BYTES
from deathless.execution.handlers.plan import Plan
from deathless.execution.values.failure import is_fatal

_KIND_AND_LENGTHS: Final = 6  # bytes of a header: kind, and lengths of handler's name and key


def hash_by_bytes(message: bytes, idem_at: int, args_at: int) -> bytes:
    """Hash all of a message but its idempotency key."""
    return _hash(message, idem_at, message[args_at:])


def hash_by_meaning(plan: Plan, arguments: msgspec.Struct, message: bytes, idem_at: int, args_at: int) -> bytes:
    """Likewise, with the arguments as they were decoded; to be called before the handler may change them."""
    try:
        encoded = plan.meaning_of(arguments, message[args_at:])
    except Exception as error:
        if is_fatal(error):
            raise
        encoded = message[args_at:]
    return _hash(message, idem_at, encoded)


def hashes(plans: Mapping[bytes, Plan], message: bytes, idem_at: int, args_at: int) -> tuple[bytes, bytes]:
    """Give the hash by meaning, under which a call is remembered, and the one by bytes."""
    by_bytes = hash_by_bytes(message, idem_at, args_at)
    method_len = HEADER.unpack_from(message)[2]
    plan = plans.get(message[HEADER_BYTES : HEADER_BYTES + method_len])
    if plan is None:
        return by_bytes, by_bytes
    try:
        arguments = plan.decode_arguments(message[args_at:])
    except BaseException as error:
        if is_fatal(error):
            raise
        return by_bytes, by_bytes
    return hash_by_meaning(plan, arguments, message, idem_at, args_at), by_bytes


def _hash(message: bytes, idem_at: int, arguments: bytes) -> bytes:
    request = hashlib.blake2b(message[:_KIND_AND_LENGTHS], digest_size=REQUEST_HASH_BYTES)
    request.update(message[HEADER_BYTES:idem_at])
    request.update(arguments)
    return request.digest()
