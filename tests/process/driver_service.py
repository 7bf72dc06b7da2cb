"""A service of the process tests whose effects go to a file (`book`) and to an HTTP address (`mail`)."""

from __future__ import annotations

from deathless import Context, Service, Struct


class Till(Struct):
    """Tags in the order in which they were sent, and the lines they got in the file, for those that waited."""

    sent: list[str] = []  # noqa: RUF012 - a Struct copies its defaults
    lines: list[int] = []  # noqa: RUF012


till = Service("till", state=Till)


@till.handler
def pay(state: Till, ctx: Context, tag: str) -> int:
    """Tell both, and go on."""
    state.sent.append(tag)
    ctx.fork("book", ctx.key, "paid", {"tag": tag})
    ctx.fork("mail", ctx.key, "paid", {"tag": tag})
    return len(state.sent)


@till.handler
async def settle(state: Till, ctx: Context, tag: str) -> int:
    """Tell both, and wait for the line of the file."""
    state.sent.append(tag)
    ctx.fork("mail", ctx.key, "paid", {"tag": tag})
    line = await ctx.call("book", ctx.key, "paid", {"tag": tag}, result=int)
    state.lines.append(line)
    return line


@till.query
def look(state: Till) -> Till:
    """Everything."""
    return state
