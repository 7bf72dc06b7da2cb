"""The service of an application in another language: what callers reach, and what the application's outputs do.

    spec: {binding: {command: [./counter]}}          stands for module "deathless.foreign.service:application"

    caller --call, send--> here --row of the topic `inputs`--> the application of every replica, in one order
    here <--row of the input `emitted`, by lane and position-- the application of the primary's replica

So what an application gets is in the log before it gets it, and what it sends is in the log before it has any effect.
An application that is killed, or another replica's, emits the same again; the stream drops by position what it has. A
call to the application itself is a row that it gets. A call to another service leaves by the outbox, as any other does.
A return completes the caller's promise.

Guarantees: each call reaches the application once and in one order on all replicas; each of its outputs has its effect
once; what the application sent is never refused, whatever it is: behind a row that was refused no other one is taken
in. Does not: know processes, or compare runs (`coordinator`). Imports the author's names and this package.
"""

from __future__ import annotations

from typing import Final

from deathless.base.errors import TooLarge
from deathless.execution.author.instance_names import service_of
from deathless.foreign.rows import (
    CALLERS,
    INPUT,
    INPUTS,
    Emitted,
    Given,
    What,
    decode_given,
    decode_items,
    encode_items,
)
from deathless.protocols.ambrosia.items import OTHERS
from deathless.protocols.ambrosia.messages import RETURNS, SELF, Kind, Oversized, Rpc, make_call, make_return
from deathless.sdk import CallFailed, CallRefused, Context, DeathlessError, Map, Service, Struct, field

EARLY_MAX: Final = 1000  # calls that are kept while the application has not begun
METHOD_MAX: Final = 1 << 31


class Answer(Struct):
    """What an application returned."""

    value: bytes | None = None  # None: it returned nothing
    error: str = ""  # empty: it raised nothing


class Outgoing(Struct):
    """A call of the application to another service, which has not left yet."""

    target: str
    method: int
    args: bytes
    sequence: int  # of the answer; -1: none is wanted


class Shown(Struct):
    """What people are shown of it."""

    begun: bool  # its own first message was logged
    calls: int  # that were given to it and want an answer, ever
    waiting: int  # of these so many have none yet
    strangers: int  # returns that nobody waited for
    sent: int  # calls to other services, ever
    unsent: int  # of these so many name no service, and want no answer
    too_long: int  # its messages that were too long, ever


class Application(Struct):
    """State of the service."""

    begun: bool = False  # its own first message was logged
    early: list[bytes] = field(default_factory=list)  # items that came before that, in order
    calls: int = 0  # that were given to it, and want an answer
    waiting: Map[int, str] = field(default_factory=Map)  # promises of those that have none yet, by sequence
    strangers: int = 0  # returns that nobody waited for
    sent: int = 0  # calls to other services, ever
    unsent: int = 0  # those of them that name no service, and want no answer
    too_long: int = 0  # messages of the application that were too long, ever
    outgoing: Map[int, Outgoing] = field(default_factory=Map)  # those that have not left yet, by their number


application = Service("application", state=Application, single=True)
inputs = application.topic(INPUTS, Given)


# ---- for callers -------------------------------------------------------------------------------------------------


@application.handler(shared=True)
async def call(held: Application, ctx: Context, method: int, args: bytes = b"") -> bytes | None:
    """Call a method of the application, and wait for what it returns.

    Raises: CallRefused with what the application raised.
    """
    _check(method)
    answer = ctx.promise(Answer)
    held.calls += 1
    sequence = held.calls
    held.waiting[sequence] = answer.id
    _give(held, ctx, make_call(SELF, method, Kind.ASYNC, args, name=CALLERS, sequence=sequence))
    found = await answer
    if found.error:
        raise CallRefused(found.error)
    return found.value


@application.handler(shared=True)
def send(held: Application, ctx: Context, method: int, args: bytes = b"") -> None:
    """Call a method of the application that returns nothing; this ends once the call is logged."""
    _check(method)
    _give(held, ctx, make_call(SELF, method, Kind.FORK, args))


def _check(method: int) -> None:
    if not -METHOD_MAX <= method < METHOD_MAX:
        raise CallRefused(f"method {method} is no method id: those have 32 bits")


def _give(held: Application, ctx: Context, item: Rpc) -> None:
    """Let the application have a call, behind its first message."""
    if held.begun:
        ctx.emit(inputs, Given(What.ITEMS, encode_items([item])))
    elif len(held.early) < EARLY_MAX:
        held.early.append(encode_items([item]))
    else:
        raise CallRefused(f"the application has not begun yet, and {EARLY_MAX} calls wait for that")


@application.query
def show(held: Application) -> Shown:
    """Give what was called, and what became of it."""
    return Shown(held.begun, held.calls, len(held.waiting), held.strangers, held.sent, held.unsent, held.too_long)


# ---- for the application -----------------------------------------------------------------------------------------


@application.input(INPUT)
def emitted(held: Application, ctx: Context, row: Emitted) -> None:
    """Take in what the application sent."""
    if row.what == What.INITIAL:
        _begin(held, ctx, row.items)
        return
    to_itself: list[Rpc] = []
    items = decode_items(row.items)
    for item in items:
        target = row.target if row.upto and row.target != OTHERS else item.destination
        if isinstance(item, Oversized):
            to_itself += _refuse(held, ctx, target, item)
        elif target == SELF:
            to_itself.append(item)
        elif item.kind in RETURNS:
            _answer(held, ctx, target, item)
        else:
            _relay(held, ctx, target, item)
    if to_itself or row.upto or not items:  # one without items asks for a row
        ctx.emit(inputs, Given(What.ITEMS, encode_items(to_itself), row.target, row.upto, row.chain, row.shape))


def _begin(held: Application, ctx: Context, data: bytes) -> None:
    """The application's first message is logged, before everything else that it gets."""
    if held.begun:
        return
    held.begun = True
    ctx.emit(inputs, Given(What.INITIAL, data))
    early, held.early = held.early, []
    for items in early:
        try:
            ctx.emit(inputs, Given(What.ITEMS, items))
        except TooLarge as error:
            _turn_away(held, ctx, items, error)


def _turn_away(held: Application, ctx: Context, items: bytes, error: TooLarge) -> None:
    """Tell who waits for a call that it has no room in a row: to refuse the first message would end everything."""
    for item in decode_given(items):
        held.too_long += 1
        promise = held.waiting.pop(item.sequence, "") if item.kind is Kind.ASYNC else ""
        if promise:
            ctx.complete(promise, Answer(None, f"the call is too long: {error}"))


def _refuse(held: Application, ctx: Context, target: str, item: Oversized) -> list[Rpc]:
    """Tell whoever waits for a message that it was too long; gives what the application is told."""
    held.too_long += 1
    if item.kind in RETURNS:
        text = f"what it returned has {item.size} bytes, which is too long for a message".encode()
        _answer(held, ctx, target, make_return(SELF, Kind.EXCEPTION, text, name="", sequence=item.sequence))
    elif item.kind is Kind.ASYNC:
        text = f"the call has {item.size} bytes, which is too long for a message".encode()
        return [make_return(SELF, Kind.EXCEPTION, text, name=target, sequence=item.sequence)]
    return []


def _answer(held: Application, ctx: Context, target: str, item: Rpc) -> None:
    """Complete the call that this returns; one that nobody waits for is counted."""
    promise = held.waiting.pop(item.sequence, "") if target == CALLERS else ""
    if not promise:
        held.strangers += 1
        return
    text = item.arguments.decode(errors="replace") if item.kind is Kind.EXCEPTION else ""
    value = item.arguments if item.kind is Kind.VALUE else None
    try:
        ctx.complete(promise, Answer(value, text or ("it failed" if item.kind is Kind.EXCEPTION else "")))
    except TooLarge as error:  # bytes that are no text are longer as one, and a reply may be shorter than a message
        held.too_long += 1
        ctx.complete(promise, Answer(None, f"what it returned is too long for a reply: {error}"))


def _relay(held: Application, ctx: Context, target: str, item: Rpc) -> None:
    """Have a call to another service leave."""
    held.sent += 1
    sequence = item.sequence if item.kind is Kind.ASYNC else -1
    held.outgoing[held.sent] = Outgoing(target, item.method, item.arguments, sequence)
    ctx.fork(application.name, "", "relay", {"number": held.sent})


@application.handler(shared=True)
async def relay(held: Application, ctx: Context, number: int) -> None:
    """Call another service for the application, once; whoever else calls this changes nothing.

    That service is called by its handlers `call` or `send`, with method and arguments, at the key behind a slash. A
    name that no service can have stands for the one that `instance_names.service_of` gives.
    """
    outgoing = held.outgoing.pop(number, None)
    if outgoing is None:
        return
    name, _, key = outgoing.target.partition("/")
    service = service_of(name)
    arguments = {"method": outgoing.method, "args": outgoing.args}
    if outgoing.sequence < 0:
        try:
            ctx.fork(service, key, "send", arguments)
        except DeathlessError:  # it names no service
            held.unsent += 1
        return
    kind, payload = Kind.VOID, b""
    try:
        value = await ctx.call(service, key, "call", arguments)
    except CallFailed as error:
        kind, payload = Kind.EXCEPTION, str(error).encode()
    except DeathlessError as error:
        kind, payload = Kind.EXCEPTION, f"{error.code} {error}".encode()
    else:
        if value is not None and not isinstance(value, bytes):
            kind, payload = Kind.EXCEPTION, f"{outgoing.target} returned no bytes".encode()
        elif value is not None:
            kind, payload = Kind.VALUE, value
    try:
        ctx.emit(inputs, _returned(outgoing, kind, payload))
    except TooLarge as error:  # another service's reply may be longer than a row of ours
        text = f"what {outgoing.target} returned is too long for a row: {error}".encode()
        ctx.emit(inputs, _returned(outgoing, Kind.EXCEPTION, text))


def _returned(outgoing: Outgoing, kind: Kind, payload: bytes) -> Given:
    """Give the row by which the application hears what its call came to."""
    item = make_return(SELF, kind, payload, name=outgoing.target, sequence=outgoing.sequence)
    return Given(What.ITEMS, encode_items([item]))
