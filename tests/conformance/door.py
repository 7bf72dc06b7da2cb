"""A door: a place at which bytes from outside are read, with bytes that are right and a way to get them there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from deathless.base.errors import DeathlessError
from deathless.codec import wire

GOLDEN = Path(__file__).parents[1] / "golden"
Feed = Callable[[bytes, Path], object]


class Door(NamedTuple):
    """One place."""

    name: str
    sites: tuple[str, ...]  # the decoders behind it, as path::function below runtime/deathless or operator/
    feed: Feed  # gives bytes to it; a new folder is for the door's files
    good: bytes
    hostile: Callable[[bytes], Iterator[tuple[str, bytes]]]
    refusals: tuple[type[Exception], ...] = (DeathlessError,)  # what it answers hostile bytes with, if with an error


def golden(name: str) -> bytes:
    """Bytes of a format as they are recorded."""
    return (GOLDEN / f"{name}.bin").read_bytes()


def body(name: str) -> bytes:
    """Body of a recorded packet."""
    return golden(f"wire_{name}")[wire.PREFIX_BYTES :]


def at(path: str, read: Callable[[Path], object], *, parents: int = 0) -> Feed:
    """What puts the bytes into a file and has it read: by its path, or by one of the folders above."""

    def feed(data: bytes, folder: Path) -> object:
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        return read(target.parents[parents - 1] if parents else target)

    return feed


def of(read: Callable[[bytes], object]) -> Feed:
    """What hands the bytes over as they are."""
    return lambda data, _: read(data)


def of_text(read: Callable[[str], object]) -> Feed:
    """What hands them over as text, as a command line or an object of Kubernetes does."""
    return lambda data, _: read(data.decode(errors="surrogateescape"))
