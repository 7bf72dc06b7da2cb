"""xxHash64 with seed 0 from the algorithm's description, for the check bytes of records.

Why it exists: beside the coordinator's, so that each shows mistakes of the other; it favours likeness to the
description. Does not: run fast; a binding may leave the check out (`Binding(verify=False)`). Imports nothing of ours.
"""

from __future__ import annotations

from typing import Final

_PRIMES: Final = (
    11400714785074694791,
    14029467366897019727,
    1609587929392839161,
    9650029242287828579,
    2870177450012600261,
)
_MODULUS: Final = 1 << 64


def _turned(word: int, left: int) -> int:
    high, low = divmod(word << left, _MODULUS)
    return high + low


def _step(accumulator: int, word: int) -> int:
    return _turned((accumulator + word * _PRIMES[1]) % _MODULUS, 31) * _PRIMES[0] % _MODULUS


def xxh64(data: bytes) -> int:
    """Give the hash, in [0, 2**64)."""
    words = [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data) - len(data) % 8, 8)]
    whole = len(data) // 32 * 4
    if whole:
        lanes = [_PRIMES[0] + _PRIMES[1], _PRIMES[1], 0, _MODULUS - _PRIMES[0]]
        for index, word in enumerate(words[:whole]):
            lanes[index % 4] = _step(lanes[index % 4], word)
        state = sum(map(_turned, lanes, (1, 7, 12, 18))) % _MODULUS
        for lane in lanes:
            state = ((state ^ _step(0, lane)) * _PRIMES[0] + _PRIMES[3]) % _MODULUS
    else:
        state = _PRIMES[4]
    state = (state + len(data)) % _MODULUS
    for word in words[whole:]:
        state = (_turned(state ^ _step(0, word), 27) * _PRIMES[0] + _PRIMES[3]) % _MODULUS
    tail = data[len(words) * 8 :]
    if len(tail) >= 4:
        state ^= int.from_bytes(tail[:4], "little") * _PRIMES[0] % _MODULUS
        state = (_turned(state, 23) * _PRIMES[1] + _PRIMES[2]) % _MODULUS
        tail = tail[4:]
    for byte in tail:
        state = _turned(state ^ byte * _PRIMES[4] % _MODULUS, 11) * _PRIMES[0] % _MODULUS
    state = (state ^ state >> 33) * _PRIMES[1] % _MODULUS
    state = (state ^ state >> 29) * _PRIMES[2] % _MODULUS
    return state ^ state >> 32
