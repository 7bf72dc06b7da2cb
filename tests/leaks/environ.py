"""Planted leak: the environment."""

import os

from deathless import Context, Service, Struct


class Note(Struct):
    text: str = ""


service = Service("leak", state=Note)


@service.handler
def leak(note: Note, ctx: Context) -> str:
    note.text = os.environ.get("HOME", "")
    return note.text


@service.handler
def innocent(note: Note, ctx: Context, amount: int) -> int:
    note.text = f"{ctx.key} {amount} {ctx.now} {ctx.random.random()} {ctx.uuid()}"
    return amount
