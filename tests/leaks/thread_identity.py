"""Planted leak: a thread."""

import threading

from deathless import Context, Service, Struct


class Note(Struct):
    text: str = ""


service = Service("leak", state=Note)


@service.handler
def leak(note: Note, ctx: Context) -> str:
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(threading.get_ident()))
    thread.start()
    thread.join()
    note.text = str(seen)
    return note.text


@service.handler
def innocent(note: Note, ctx: Context, amount: int) -> int:
    note.text = f"{ctx.key} {amount} {ctx.now} {ctx.random.random()} {ctx.uuid()}"
    return amount
