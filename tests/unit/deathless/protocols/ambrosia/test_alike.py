"""What is counted as alike begins as the first does; and most of what is alike is counted."""

import random

from deathless.protocols.ambrosia.alike import FIRST, alike


def test_messages_are_counted_as_far_as_their_heads_are_equal() -> None:
    """At any place, and never beyond what is there."""
    chance = random.Random(1)
    for _ in range(300):
        head, count = chance.randrange(1, 6), chance.randrange(1, 400)
        length = head + chance.randrange(5)
        begin = chance.randbytes(head)
        messages = [begin + chance.randbytes(length - head) for _ in range(count)]
        other = chance.randrange(count + 50)
        if 0 < other < count:
            messages[other] = bytes([begin[0] ^ 1]) + messages[other][1:]
        data = bytearray(b"before") + b"".join(messages)
        found = alike(data, 6, length, head, count)
        equal = other if 0 < other < count else count
        assert 1 <= found <= equal
        assert found == count or found * 8 >= equal or equal < FIRST


def test_one_message_is_like_itself() -> None:
    """With whatever behind it."""
    assert alike(b"ab", 0, 2, 1, 1) == 1
    assert alike(b"abac", 0, 2, 1, 2) == 2
    assert alike(b"abcd", 0, 2, 1, 2) == 1
