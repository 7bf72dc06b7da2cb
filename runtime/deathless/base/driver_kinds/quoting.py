"""What a library says of a text that may hold a password, without what it quotes of it.

Why: libpq and the standard library quote the part of a connection string, or all of it, that they can't read, and what
is said of options stands in logs, in the status of a pod and in conditions.

Guarantees: nothing from the first quotation mark to the last one is told. Does not: know which part is the password.
Imports nothing of ours.
"""

from __future__ import annotations

import re
from typing import Final

_QUOTED: Final = re.compile(r"(['\"]).*['\"]", re.DOTALL)


def unquoted(text: str) -> str:
    """Give what is said, with one mark in place of all that is quoted."""
    return _QUOTED.sub('"…"', text)
