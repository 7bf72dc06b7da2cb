"""The arguments of a message as JSON, for sinks that write it; what has no JSON form is refused, and never changed.

msgspec writes null for NaN and the infinities, so that a receiver would take a number for one that is missing.

Guarantees: DeliveryRefused for what can't be JSON, whatever the encoder raises. Does not: know sinks. Imports the port
and the shell's JSON.
"""

from __future__ import annotations

import msgspec

from deathless.base.errors import DeliveryRefused
from deathless.shell.web.json_results import became_null


def json_of(value: object, arguments: object, position: int) -> bytes:
    """Give a value as JSON.

    Args:
        value: what is written.
        arguments: of the message, which it holds.
        position: of the message.

    Raises: DeliveryRefused.
    """
    try:
        data = msgspec.json.encode(value)
        why = became_null(data, arguments, "the message")
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise DeliveryRefused(f"its arguments are not JSON: {error}", position=position) from None
    if why:
        raise DeliveryRefused(f"its arguments are not JSON: {why}", position=position)
    return data
