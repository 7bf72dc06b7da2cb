"""The error of an application: it says what, where, and what would be right."""

from __future__ import annotations

from deathless.base.errors import InvalidUse
from deathless.protocols.ambrosia.errors import ProtocolViolated


def test_an_error_shows_the_place_and_the_bytes_there() -> None:
    error = ProtocolViolated("the size is -1").at(7, bytes(range(40)))
    assert isinstance(error, InvalidUse)
    assert error.offset == 7
    assert str(error).startswith("DL3104 the size is -1; byte 7 of the stream: 000102")
    assert bytes(range(32)).hex() in str(error)
    assert bytes(range(33)).hex() not in str(error)
    assert "docs/formats/ambrosia.md" in str(error)
    assert ProtocolViolated("x").offset == -1
