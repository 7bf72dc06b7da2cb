"""Who is told no message a second time needs no keys."""

from deathless.execution.values.key_table import NoKeys


def test_no_key_is_remembered() -> None:
    keys = NoKeys()
    keys.remember(b"k", bytes(16), b"\x00")
    assert b"k" not in keys
    assert keys.check(b"k", (bytes(16),)) is None
