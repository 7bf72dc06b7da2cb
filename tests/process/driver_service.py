"""Services of the process tests whose effects go to a file (`book`) and to HTTP addresses (`mail`, and `desk`'s)."""

from __future__ import annotations

import json

from deathless import Context, OutcomeUnknown, Service, Struct
from deathless.drivers.activity import HttpAnswer, http_request


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


class Desk(Struct):
    """What became of each request, in order."""

    outcomes: list[str] = []  # noqa: RUF012 - as above


desk = Service("desk", state=Desk)
send_once = desk.activity(at_most_once=True)(http_request)


@desk.activity(first_delay=0.0)
def send(url: str, body: str) -> HttpAnswer:
    """Send it at least once."""
    return http_request(url, "POST", body)


@desk.handler
async def charge(state: Desk, ctx: Context, url: str, tag: str, at_most_once: bool) -> str:
    """Send a request; gives the status of its answer."""
    body = json.dumps({"tag": tag})
    try:
        asked = ctx.run(send_once, url, "POST", body) if at_most_once else ctx.run(send, url, body)
        outcome = str((await asked).status)
    except OutcomeUnknown:
        outcome = "unknown"
    state.outcomes.append(outcome)
    return outcome
