"""Names in a topic's folder: whose rows they are, and which positions a file begins with.

    <service id>.<incarnation>/                       one source: its positions are one sequence
      <first position>-<epoch>-<n>.rows               n: the files of one epoch are counted
      floors/<position>.<reason>                      rows below it may be gone; the highest one counts; empty
      holds/<name>.json                               a reader that needs rows from a position on

Does not: open anything. Imports base.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from deathless.base.errors import InvalidArgument

TOPICS: Final = "topics"  # in a shard's folder
SUFFIX: Final = ".rows"
FLOORS: Final = "floors"
HOLDS: Final = "holds"
JSON: Final = ".json"
_SOURCE: Final = re.compile(r"([0-9a-f]{32})\.(0|[1-9][0-9]{0,18})")
_FILE: Final = re.compile(r"([0-9]{20})-([1-9][0-9]{0,18})-([1-9][0-9]{0,9})\.rows")
_FLOOR: Final = re.compile(r"([0-9]{20})\.([a-z]{1,20})")
_HOLD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class TopicSource(NamedTuple):
    """Who published: a service, in one incarnation. Positions of two sources have nothing to do with each other."""

    service_id: str  # 32 hexadecimal digits
    incarnation: int

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return f"{self.service_id}.{self.incarnation}"


class FileName(NamedTuple):
    """What the name of a file says."""

    first: int
    epoch: int
    number: int

    @property
    def text(self) -> str:
        """The name; `parse_file` is its inverse."""
        return f"{self.first:020d}-{self.epoch}-{self.number}{SUFFIX}"


def topic_directory(shard_directory: str, topic: str) -> str:
    """Give the folder of a topic in its shard's."""
    return f"{shard_directory.rstrip('/')}/{TOPICS}/{topic}"


def parse_source(name: str) -> TopicSource | None:
    """Read the name of a source's folder; None: it is another name."""
    found = _SOURCE.fullmatch(name)
    return TopicSource(found[1], int(found[2])) if found else None


def parse_file(name: str) -> FileName | None:
    """Read the name of a file of rows; None: it is another name."""
    found = _FILE.fullmatch(name)
    return FileName(int(found[1]), int(found[2]), int(found[3])) if found else None


def floor_name(position: int, reason: str) -> str:
    """Give the name of a floor; `parse_floor` is its inverse."""
    return f"{position:020d}.{reason}"


def parse_floor(name: str) -> tuple[int, str] | None:
    """Read position and reason of a floor's name; None: it is another name."""
    found = _FLOOR.fullmatch(name)
    return (int(found[1]), found[2]) if found else None


def parse_hold(name: str) -> str | None:
    """Give the name of the hold whose file this is; None: it is another name."""
    stem = name.removesuffix(JSON)
    return stem if stem != name and _HOLD.fullmatch(stem) else None


def hold_name(name: str) -> str:
    """Give the name of a hold's file. Raises: InvalidArgument."""
    if not _HOLD.fullmatch(name):
        raise InvalidArgument(
            f"{name[:100]!r} can't name a hold: 1 to 63 letters, digits, dots, underscores and hyphens, "
            "of which the first is a letter or a digit"
        )
    return name + JSON
