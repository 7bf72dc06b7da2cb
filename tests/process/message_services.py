"""Two services of the process tests that talk: `sender` forks to `receiver` and calls it, and waits in every way."""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from pathlib import Path

from deathless import CallFailed, Cancelled, Context, OutcomeUnknown, Service, Struct, current_activity


class Ledger(Struct):
    """Tags in the order they came."""

    tags: list[str] = []  # noqa: RUF012 - a Struct copies its defaults


receiver = Service("receiver", state=Ledger)


@receiver.handler
def note(ledger: Ledger, ctx: Context, tag: str) -> int:
    """Remember a tag."""
    ledger.tags.append(tag)
    return len(ledger.tags)


@receiver.handler
def refuse(ledger: Ledger, ctx: Context) -> int:
    """Fail."""
    raise ValueError("not that")


@receiver.query
def tags(ledger: Ledger) -> list[str]:
    """All tags."""
    return ledger.tags


class History(Struct):
    """What was sent, in order, what came back, and what was done."""

    sent: list[str] = []  # noqa: RUF012 - as above
    totals: list[int] = []  # noqa: RUF012
    steps: list[str] = []  # noqa: RUF012
    promise: str = ""


sender = Service("sender", state=History)


@sender.handler
def fork(history: History, ctx: Context, tag: str) -> int:
    """Send a tag and go on."""
    history.sent.append(tag)
    ctx.fork("receiver", ctx.key, "note", {"tag": tag})
    return len(history.sent)


@sender.handler
async def call(history: History, ctx: Context, tag: str) -> int:
    """Send a tag and wait for the count of tags."""
    history.sent.append(tag)
    total = await ctx.call("receiver", ctx.key, "note", {"tag": tag}, result=int)
    history.totals.append(total)
    return total


@sender.handler
async def nap(history: History, ctx: Context, seconds: float) -> int:
    """Wait for a timer; gives for how long, microseconds of logical time."""
    began = ctx.now_us
    await ctx.timer(after=timedelta(seconds=seconds))
    return ctx.now_us - began


@sender.activity(first_delay=0.0)
def linger(folder: str, tag: str) -> str:
    """Say that it began, wait until it may end, say that it ended."""
    return work(folder, tag)


@sender.activity(at_most_once=True)
def once(folder: str, tag: str) -> str:
    """The same, at most once."""
    return work(folder, tag)


def work(folder: str, tag: str) -> str:
    """Write a file that names process and key; go on when the file `go` is there."""
    call = current_activity()
    written = Path(folder) / f"{tag}.{os.getpid()}"
    written.write_text(call.key)
    written.rename(f"{written}.began")  # whole once it is seen
    pause = threading.Event()
    while not (Path(folder) / "go").exists():
        pause.wait(0.01)
    return call.key


@sender.handler
async def do(history: History, ctx: Context, folder: str, tag: str, at_most_once: bool) -> str:
    """Run an activity; its outcome, or that nobody knows it, is a step."""
    try:
        done = await (ctx.run(once, folder, tag) if at_most_once else ctx.run(linger, folder, tag))
    except OutcomeUnknown:
        done = "unknown"
    history.steps.append(f"{tag} {done}")
    return done


@sender.handler
async def book(history: History, ctx: Context, tag: str) -> str:
    """A saga: two steps, an approval that somebody gives, and what undoes the first step when it is not given."""
    await ctx.call("receiver", ctx.key, "note", {"tag": f"{tag} reserved"})
    history.steps.append(f"{tag} reserved")
    approval = ctx.promise(bool)
    history.promise = approval.id
    try:
        if not await approval:
            await ctx.call("receiver", ctx.key, "refuse")
        outcome = "booked"
    except (CallFailed, Cancelled):
        await ctx.call("receiver", ctx.key, "note", {"tag": f"{tag} released"})
        outcome = "released"
    history.promise = ""
    history.steps.append(f"{tag} {outcome}")
    return outcome


@sender.handler(shared=True)
def approve(history: History, ctx: Context, promise: str, approved: bool) -> None:
    """Decide what `book` waits for."""
    ctx.complete(promise, approved)


@sender.query
def look(history: History) -> History:
    """Everything."""
    return history
