"""The check bytes of records by the machine's own xxHash64, where there is one.

Why it exists: in Python they cost a tenth of a second for 1 MiB, which is more than all else that is done for it. The
library is a few kilobytes that most systems have (`libxxhash0` of Debian, which the image has); nothing is installed or
built for it.

Guarantees: the values of `protocols.ambrosia.check_bytes`, which is used where there is no library, or where that gives
another value for a text that is tried first. Does not: log. Imports protocols.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Final

from deathless.protocols.ambrosia.check_bytes import xxhash64
from deathless.protocols.ambrosia.records import Check

LIBRARY: Final = "libxxhash.so.0"
_TRIED: Final = bytes(range(100))


@functools.cache
def fastest_check(library: str = LIBRARY) -> Check:
    """Give what computes them here.

    Args:
        library: its name, as the machine's loader looks for it.
    """
    try:
        found = ctypes.CDLL(library).XXH64
    except (OSError, AttributeError):
        return xxhash64
    found.restype = ctypes.c_uint64
    found.argtypes = (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64)

    def check(data: bytes) -> int:
        value: int = found(data, len(data), 0)
        return value

    return check if check(_TRIED) == xxhash64(_TRIED) else xxhash64
