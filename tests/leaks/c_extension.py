"""Planted leak: a C extension whose output depends on the process."""

import _pickle

from deathless import Context, Service, Struct


class Note(Struct):
    text: str = ""


service = Service("leak", state=Note)


@service.handler
def leak(note: Note, ctx: Context) -> str:
    words = frozenset({"ape", "bee", "cat", "dog", "eel", "fox", "gnu", "hen"})
    note.text = _pickle.dumps(words).hex()
    return note.text


@service.handler
def innocent(note: Note, ctx: Context, amount: int) -> int:
    note.text = f"{ctx.key} {amount} {ctx.now} {ctx.random.random()} {ctx.uuid()}"
    return amount
