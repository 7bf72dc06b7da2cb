"""The hash by which settings are told apart: on a ConfigMap, on a pod, and in what a replica tells of itself.

Guarantees: equal JSON values have an equal hash, in whatever order and spelling they were written. Does not: keep
anybody from finding another value with the same one: it tells versions apart, and authenticates nothing. Imports
nothing of ours.
"""

from __future__ import annotations

import hashlib

import msgspec


def settings_hash(value: object) -> str:
    """Give ten characters that change when the value does.

    Args:
        value: JSON.
    """
    return hashlib.blake2b(msgspec.json.encode(value, order="sorted"), digest_size=5).hexdigest()
