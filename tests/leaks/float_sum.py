"""Planted leak: a sum of floats in the order of a set."""

from deathless import Context, Service, Struct

PRICES = {"ape": 0.1, "bee": 1e100, "cat": -1e100, "dog": 1e60, "eel": -1e60, "fox": 1e20, "gnu": 1e-9, "hen": 77.7}


class Note(Struct):
    text: str = ""


service = Service("leak", state=Note)


@service.handler
def leak(note: Note, ctx: Context) -> str:
    wanted = {"ape", "bee", "cat", "dog", "eel", "fox", "gnu", "hen"}
    note.text = str(sum(PRICES[name] for name in wanted))
    return note.text


@service.handler
def innocent(note: Note, ctx: Context, amount: int) -> int:
    note.text = f"{ctx.key} {amount} {ctx.now} {ctx.random.random()} {ctx.uuid()}"
    return amount
