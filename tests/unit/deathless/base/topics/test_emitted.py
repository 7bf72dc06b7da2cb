"""The message that carries a row: who sends and who takes it have one record of it."""

from __future__ import annotations

import msgspec
import pytest

from deathless.base.topics.emitted import Emitted


def test_it_travels_by_name() -> None:
    sent = msgspec.msgpack.encode(Emitted("a:int64", 7, [1]))
    assert msgspec.msgpack.decode(sent) == {"schema": "a:int64", "time_us": 7, "row": [1]}
    assert msgspec.msgpack.decode(sent, type=Emitted) == Emitted("a:int64", 7, [1])


@pytest.mark.parametrize("time_us", [-1, 1 << 63])
def test_time_that_no_timestamp_holds_is_refused(time_us: int) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"schema": "a:int64", "time_us": time_us, "row": [1]}, Emitted)
