"""What streams of simulated sources hold, ids with gaps, marks, ends, refused inputs, and what is to come of it.

An input changes the state of a key of its stream, and leaves its tag there, so the state itself says which inputs had
their effect, once or twice or never, and in which order.

Guarantees: the same seed gives the same streams. Does not: know clusters. May import execution and below, workload.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

import msgspec

from deathless.codec.streams.records import OnRefusal, StreamKey, encode_input, encode_mark

SOURCE: Final = "flights"
KEY_PREFIX: Final = "stream"
KEYS: Final = 2  # of each stream
ITEMS_MAX: Final = 60
NOTE_SHARE: Final = 0.1
_encode: Final = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class Item:
    """One thing in a stream: an input or a mark with an id, or the end of the stream behind the id before it."""

    number: int  # its id; of an end: the one before it, -1 for none
    message: bytes
    end: bool = False
    key: str = ""  # whose state it changes; empty: a mark
    tag: str = ""
    refused: bool = False  # its handler refuses it
    note: bytes = b""


@dataclass(frozen=True, slots=True)
class Held:
    """One stream, whole."""

    key: StreamKey
    on_refusal: OnRefusal
    items: tuple[Item, ...]

    def expected(self) -> dict[str, list[str]]:
        """Give the tags that each key must hold in the end, in order."""
        tags: dict[str, list[str]] = {}
        ended = False
        for item in self.items:
            if item.key and not item.refused and not (item.end and ended):
                tags.setdefault(item.key, []).append(item.tag)
            ended = item.end or (ended and not item.key)
        return tags

    def last_note(self) -> bytes:
        """Give the note that stands in the end."""
        return next((item.note for item in reversed(self.items) if item.note and not item.end), b"")


def draw_streams(chance: random.Random) -> list[Held]:
    """Draw the streams of one run."""
    return [_draw_stream(chance, number) for number in range(chance.choice((1, 2, 3)))]


def _draw_stream(chance: random.Random, number: int) -> Held:
    key = StreamKey(SOURCE, number)
    refused_share = chance.choice((0.0, 0.0, 0.1))
    items: list[Item] = []
    at = chance.choice((0, 0, 7))
    for _ in range(chance.randrange(1, ITEMS_MAX)):
        drawn = chance.random()
        if drawn < 0.1:
            items.append(_end(key, items[-1].number if items else -1))
            continue
        note = f"note {at}".encode() if chance.random() < NOTE_SHARE else b""
        if drawn < 0.2:
            items.append(Item(at, encode_mark(note), note=note))
        else:
            items.append(_input(chance, key, at, note, refused=chance.random() < refused_share))
        at += chance.choice((1, 1, 1, 1, 2, 50))
    return Held(key, chance.choice(tuple(OnRefusal)), tuple(items))


def _input(chance: random.Random, key: StreamKey, number: int, note: bytes, *, refused: bool) -> Item:
    cell, tag = f"{KEY_PREFIX}{key.stream}-{chance.randrange(KEYS)}", f"{key}/{number}"
    arguments = {"amount": "much" if refused else 1, "tag": tag}
    message = encode_input(b"deposit", cell.encode(), _encode(arguments), note)
    return Item(number, message, key=cell, tag=tag, refused=refused, note=note)


def _end(key: StreamKey, behind: int) -> Item:
    cell, tag = f"{KEY_PREFIX}{key.stream}-end", f"{key}/end {behind}"
    message = encode_input(b"deposit", cell.encode(), _encode({"amount": 1, "tag": tag}))
    return Item(behind, message, end=True, key=cell, tag=tag)
