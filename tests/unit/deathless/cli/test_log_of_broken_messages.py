"""A log can be shown that holds what a sender broke: the message ran, and every replica noted the same."""

from __future__ import annotations

import pytest

from deathless.cli.look.log import _describe
from deathless.codec.messages import Kind, encode


@pytest.mark.parametrize("kind", [Kind.CALL, Kind.FORK, Kind.REQUEST, Kind.RESPONSE, Kind.CANCEL])
def test_a_message_that_can_not_be_read_is_shown_as_such(kind: int) -> None:
    message = encode(kind, method=b"\xff", key=b"k", idempotency_key=b"\xc1", args=b"\xc1")
    assert _describe(message)["args"] == {"malformed": len(message)}
