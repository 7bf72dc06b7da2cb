"""The service of the process tests: it remembers every tag it was given, and can misbehave on request."""

from __future__ import annotations

import ctypes
import random
import time

from deathless import Context, Service, Struct


class Notes(Struct):
    """Tags in the order they came."""

    tags: list[str] = []  # noqa: RUF012 - a Struct copies its defaults


ledger = Service("ledger", state=Notes)


@ledger.handler
def note(notes: Notes, ctx: Context, tag: str) -> int:
    """Remember a tag."""
    notes.tags.append(tag)
    return len(notes.tags)


@ledger.handler
def moment(notes: Notes, ctx: Context) -> int:
    """Tell logical time, microseconds."""
    return ctx.now_us


@ledger.handler
def weigh(notes: Notes, ctx: Context, blob: str) -> int:
    """Take a message of some size, and keep nothing of it."""
    return len(blob)


@ledger.handler
def die(notes: Notes, ctx: Context) -> None:
    """End the process that runs this."""
    ctypes.string_at(0)


@ledger.handler
def differ(notes: Notes, ctx: Context) -> None:
    """Compute something else in every process."""
    notes.tags.append(str(random.random()))


@ledger.handler
def linger(notes: Notes, ctx: Context, seconds: float) -> None:
    """Keep the worker busy."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@ledger.handler
def fail(notes: Notes, ctx: Context, text: str) -> None:
    """Raise after a change, which is rolled back."""
    notes.tags.append("never")
    raise ValueError(text)


@ledger.query
def notes(notes: Notes) -> list[str]:
    """All tags."""
    return notes.tags


@ledger.query
def count(notes: Notes) -> int:
    """How many tags."""
    return len(notes.tags)
