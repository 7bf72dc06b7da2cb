"""What a migration of an author may know beside the old value: `Migration`.

    @bank.migrate(from_=1)
    def up(old: AccountV1, m: Migration) -> Account:
        return Account(cents=round(old.balance * 100), seen=m.time)

Its time is one constant for a whole upgrade, so that a key that is migrated ahead of the cut and one that is migrated
at it see the same. Other keys are not in reach: a key's new state is a function of its old one.

Guarantees: nothing that is asked here differs between two migrations of one upgrade. Does not: change anything; old
maps refuse to be changed. Imports base and codec.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from deathless.execution.maps.map import Map

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
NO_MAPS: Final[Mapping[str, Map[str, object]]] = {}


class Items(Mapping["str | int | bytes", object]):
    """The items of one map of the old state, to be read."""

    __slots__ = ("_map",)

    def __init__(self, map_: Map[str, object]) -> None:
        self._map = map_

    def __getitem__(self, key: str | int | bytes) -> object:
        """Give an item."""
        return self._map[key]  # type: ignore[index]  # the field says of which type its keys are

    def __iter__(self) -> Iterator[str | int | bytes]:
        """Give the keys, ascending."""
        return iter(self._map)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._map)


class Migration:
    """What a migration is given.

    Args:
        time_us: of the upgrade, microseconds since 1970-01-01 UTC.
    """

    __slots__ = ("_time_us", "held", "key_bytes", "looked")

    def __init__(self, time_us: int) -> None:
        self._time_us = time_us
        self.key_bytes = b""  # of the state that is migrated, for who runs it
        self.held: Mapping[str, Map[str, object]] = NO_MAPS  # its maps by field, likewise
        self.looked = False  # a migration has read items, so that a change of an item changes what it gives

    @property
    def key(self) -> str:
        """Key whose state is migrated, by its old name; empty for a service of one object."""
        return self.key_bytes.decode()

    @property
    def time(self) -> datetime:
        """Time of the upgrade, aware (UTC): the same for every key."""
        return _EPOCH + timedelta(microseconds=self._time_us)

    @property
    def time_us(self) -> int:
        """Time of the upgrade in microseconds since 1970-01-01 UTC."""
        return self._time_us

    @property
    def maps(self) -> Mapping[str, Items]:
        """The maps of the old state by field, to be read. A key whose maps are read is migrated with all its items."""
        self.looked = True
        return {name: Items(held) for name, held in self.held.items()}
