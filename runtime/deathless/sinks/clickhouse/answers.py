"""What a server of ClickHouse answers, taken apart. Pure.

Something between us and the server may answer in its place, so an answer that is none is told as SinkUnavailable, and
means nothing.

Guarantees: no answer raises anything else. Imports base and codec.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from deathless.base.errors import SinkUnavailable
from deathless.codec.untrusted import JsonReader

T = TypeVar("T")


def rows_of(answer: bytes, kind: type[T]) -> list[T]:
    """Give the rows of an answer with a JSON object in each line. Raises: SinkUnavailable."""
    reader = JsonReader(kind)
    try:
        return [reader.decode(line) for line in answer.splitlines() if line]
    except msgspec.DecodeError as error:
        raise SinkUnavailable(f"the server's answer is none that was asked for: {error}") from None


def numbers_of(answer: bytes) -> list[int]:
    """Give the numbers of an answer with one in each line. Raises: SinkUnavailable."""
    try:
        return [int(line) for line in answer.split()]
    except ValueError:
        raise SinkUnavailable("the server's answer has no numbers, which were asked for") from None


def words_of(answer: bytes, count: int = 0) -> list[str]:
    """Give the words of an answer, which lines and tabs separate; so many of them, 0: any number.

    Raises: SinkUnavailable.
    """
    found = answer.decode(errors="replace").replace("\n", "\t").split("\t")[:-1]
    if count and len(found) != count:
        raise SinkUnavailable(f"the server's answer has {len(found)} words, and {count} were asked for")
    return found
