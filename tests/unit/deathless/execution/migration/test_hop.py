"""One stretch: strict on the way in, checked on the way out."""

from __future__ import annotations

import msgspec
import pytest

from deathless import Migration, Service, Struct, field
from deathless.base.errors import TooLarge
from deathless.base.limits import Limits
from deathless.execution.author.changes import Hop
from deathless.execution.migration.hop import Stretch, Unknown

pack = msgspec.msgpack.encode


class Inner(Struct):
    a: int = 0


class State(Struct):
    inner: Inner = field(default_factory=Inner)


def stretch(*, strict: bool = True, drops: frozenset[tuple[str, str]] = frozenset(), size: int = 1 << 20) -> Stretch:
    hop = Hop(1, 2, None, {}, None, State, State)
    return Stretch(hop, Limits(entity_bytes_max=size), b"", strict=strict, drops=drops)


LOSSY = pack({"inner": {"a": 1, "b": 2}})


def test_a_nested_field_that_would_be_lost_is_raised() -> None:
    with pytest.raises(Unknown) as caught:
        stretch().plain(LOSSY, Migration(0))
    assert caught.value.found == [("Inner", "b")]
    kept = pack({"inner": {"a": 1}})
    assert stretch(drops=frozenset({("Inner", "b")})).plain(LOSSY, Migration(0)) == kept
    assert stretch(strict=False).plain(LOSSY, Migration(0)) == kept  # so the look is needed


def test_a_state_that_is_too_large_is_raised() -> None:
    with pytest.raises(TooLarge, match="at most 4"):
        stretch(size=4).plain(pack(State()), Migration(0))


def test_versions_between_are_checked_as_well() -> None:
    """What the first function gives is encoded and decoded before the second one sees it."""

    class Two(Struct):
        n: int = 0

    made = Service("s", state=Two, version=3)
    seen: list[object] = []

    @made.migrate(from_=1)
    def first(old: State, m: Migration) -> Two:
        return Two(True)

    @made.migrate(from_=2)
    def second(old: Two, m: Migration) -> Two:
        seen.append(old.n)
        return old

    way = made.declared.way(1)
    assert isinstance(way, list)
    steps = [Stretch(hop, Limits(), b"", strict=False) for hop in way]
    with pytest.raises(msgspec.ValidationError):
        steps[0].plain(pack(State()), Migration(0))
    assert seen == []
