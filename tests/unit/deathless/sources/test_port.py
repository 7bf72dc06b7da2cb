"""The port of sources: what a reader is given and gives is checked data, and settings name what is wrong."""

from __future__ import annotations

import msgspec
import pytest

from deathless.base.errors import InvalidConfig
from deathless.sources.port import Partition, Point, Reader, Settings


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    folder_name: str


def test_a_reader_has_what_the_host_calls() -> None:
    wanted = {name for name in vars(Reader) if not name.startswith("_")}
    assert wanted == {"partitions", "open", "read", "taken_in", "adopt", "leave", "close"}


def test_points_and_partitions_are_ordered_by_how_far_they_are() -> None:
    assert min(Point(4, b"b"), Point(-1, b""), Point(4, b"a")) == Point(-1, b"")
    assert min(Partition(2, "a"), Partition(1, "b")).number == 1


def test_options_are_typed_and_what_is_wrong_is_named() -> None:
    settings = Settings("flights", {"folderName": "in"}, "/srv")
    assert settings.typed(Options).folder_name == "in"
    assert str(settings.path("in")) == "/srv/in"
    with pytest.raises(InvalidConfig, match=r"source flights: options: .*`folderNam`"):
        Settings("flights", {"folderNam": "in"}).typed(Options)
