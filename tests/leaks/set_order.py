"""Planted leak: the order of a set of text."""

from deathless import Context, Service, Struct


class Note(Struct):
    text: str = ""


service = Service("leak", state=Note)


@service.handler
def leak(note: Note, ctx: Context) -> str:
    words = {"ape", "bee", "cat", "dog", "eel", "fox", "gnu", "hen"}
    note.text = " ".join(words)
    return note.text


@service.handler
def innocent(note: Note, ctx: Context, amount: int) -> int:
    note.text = f"{ctx.key} {amount} {ctx.now} {ctx.random.random()} {ctx.uuid()}"
    return amount
