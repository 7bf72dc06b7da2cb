"""The service of the cluster tests of pipelines: it publishes each tag that it is given, and takes in their copies."""

from __future__ import annotations

from deathless import Context, Service, Struct


class Noted(Struct):
    """A row of the topic."""

    tag: str


class Notes(Struct):
    """Tags, and the copies that came of them, in the order they came."""

    tags: list[str] = []  # noqa: RUF012 - a Struct copies its defaults
    copies: list[str] = []  # noqa: RUF012


ledger = Service("ledger", state=Notes)
noted = ledger.topic("noted", Noted)


@ledger.handler
def note(notes: Notes, ctx: Context, tag: str) -> int:
    """Remember a tag and publish it."""
    notes.tags.append(tag)
    ctx.emit(noted, Noted(tag))
    return len(notes.tags)


@ledger.handler
def copied(notes: Notes, ctx: Context, tag: str) -> None:
    """Take in what a pipeline has read of the topic."""
    notes.copies.append(tag)


@ledger.query
def copies(notes: Notes) -> list[str]:
    """All copies."""
    return notes.copies
