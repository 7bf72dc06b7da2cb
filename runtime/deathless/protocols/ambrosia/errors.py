"""The error of an application that does not keep to the AMBROSIA client protocol.

Why it exists: such an application can't be served on, and its author has to find the line. So the error says what was
read, where in the stream it stood and what would have been right. Does not: decide whether the application lives on;
`deathless.protocols.ambrosia.machine` does. Imports base.
"""

from __future__ import annotations

from typing import Final

from deathless.base.errors import InvalidUse

NEAR_BYTES: Final = 32  # of the stream, shown with an error


class ProtocolViolated(InvalidUse):
    """The application sent what the protocol does not allow; the message names field, value and place.

    Attributes:
        offset: of the message in the application's stream, in bytes from its beginning; -1: not known.
    """

    code = "DL3104"
    exit_code = 70
    remedy = (
        "fix the language binding or its use: docs/formats/ambrosia.md says what may be sent, "
        "docs/design/0030-ambrosia-protocol.md when"
    )
    offset: int = -1

    def at(self, offset: int, near: bytes) -> ProtocolViolated:
        """Give the same error with its place.

        Args:
            offset: of the message in the stream, bytes.
            near: what stands there, as far as it was read.
        """
        placed = ProtocolViolated(f"{self.message}; byte {offset} of the stream: {near[:NEAR_BYTES].hex()}")
        placed.offset = offset
        return placed
