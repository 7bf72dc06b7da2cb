"""Settings are told apart by what they say."""

from __future__ import annotations

import msgspec

from deathless.base.settings_hash import settings_hash


def test_order_and_spelling_do_not_count_and_values_do() -> None:
    one = msgspec.json.decode(b'{"a": 1, "b": [true, null]}')
    same = msgspec.json.decode(b'{"b":[true,null],\n"a":1}')
    assert settings_hash(one) == settings_hash(same)
    others: list[object] = [one, {"a": 1}, {"a": "1", "b": [True, None]}, [], None]
    assert len(set(map(settings_hash, others))) == 5
    assert len(settings_hash(one)) == 10
