"""Planted leak: memory beside the state."""

from deathless import Context, Service, Struct

COUNTS: dict[str, int] = {}


class Note(Struct):
    text: str = ""


service = Service("leak", state=Note)


@service.handler
def leak(note: Note, ctx: Context) -> str:
    COUNTS[ctx.key] = COUNTS.get(ctx.key, 0) + 1
    note.text = str(COUNTS[ctx.key])
    return note.text


@service.handler
def innocent(note: Note, ctx: Context, amount: int) -> int:
    note.text = f"{ctx.key} {amount} {ctx.now} {ctx.random.random()} {ctx.uuid()}"
    return amount
