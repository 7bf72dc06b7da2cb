"""Ids and numbers that could be swapped by mistake, each with a type of its own.

Why: an epoch and an lsn are both integers; a function that takes one and is given the other loses
data without a sound. Every id here is a `NewType`, so the type checker refuses the swap.

Guarantees: nothing at run time; these are plain `int`, `str` and `bytes`. Imports nothing of ours.
"""

from __future__ import annotations

from typing import Final, NewType

Epoch = NewType("Epoch", int)
"""Fencing token of a shard; grows at every takeover; the first is 1, 0 means "none yet"."""

Lsn = NewType("Lsn", int)
"""Ordinal of a message in its shard since creation; the first is 1, 0 means "before the first".

Stable under re-batching: a message keeps its lsn when a takeover copies its frame."""

Roll = NewType("Roll", int)
"""Index (0-based) of a segment file within its epoch."""

SessionId = NewType("SessionId", int)
"""A sender known to the shard: the lsn of its registration. 0 is the shard itself (system runs)."""

Seq = NewType("Seq", int)
"""Ordinal of a message within its session; the first is 1."""

Incarnation = NewType("Incarnation", int)
"""Drawn anew when a service is created or restored, so an old name is told from a new service."""

ReplicaId = NewType("ReplicaId", str)
"""Name of a replica within its service: `r0`, `r1`, ... (a pod's name in a cluster)."""

ServiceName = NewType("ServiceName", str)
"""Name of a service: a DNS label, `[a-z]([-a-z0-9]*[a-z0-9])?`, at most 40 characters."""

ChainHash = NewType("ChainHash", bytes)
"""BLAKE2b-128 over the previous chain hash, first lsn and payload of a frame; 16 bytes."""

Digest = NewType("Digest", bytes)
"""Rolling BLAKE2b-128 over all replies and states since creation; 16 bytes."""

Fingerprint = NewType("Fingerprint", bytes)
"""BLAKE2b-128 over code, interpreter, libraries and time-zone data; 16 bytes."""

Micros = NewType("Micros", int)
"""Microseconds since 1970-01-01 UTC (logical time), or a length of time in microseconds."""

SYSTEM_SESSION: Final = SessionId(0)
