"""Values of columns that have parts, as JSON for a table; what has no JSON form is refused, and never changed.

msgspec writes null for NaN and the infinities, which a column of floats itself does hold.

Guarantees: BlockRefused for what JSON can't carry. Does not: know stores. Imports the port and the shell's JSON.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from deathless.shell.web.json_results import became_null
from deathless.sinks.port import BlockRefused


def json_texts(values: Iterable[object], column: str) -> list[str | None]:
    """Give each value as JSON, None as None. Raises: BlockRefused naming the column."""
    return [None if each is None else _json_text(each, column) for each in values]


def _json_text(value: object, column: str) -> str:
    data = msgspec.json.encode(value, enc_hook=str)
    if why := became_null(data, value, f"column {column}"):
        raise BlockRefused(why)
    return data.decode()
