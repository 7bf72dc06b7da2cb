"""The service of an application in another language: what callers reach, and what the application's outputs do.

    spec: {binding: {command: [./counter]}}          stands for module "deathless.foreign.service:application"

    caller --call, send--> here --row of the topic `inputs`--> the application of every replica, in one order
    here <--row of the input `emitted`, by lane and position-- the application of the primary's replica

So what an application gets is in the log before it gets it, and what it sends is in the log before it has any effect.
An application that is killed, or another replica's, emits the same again; the stream drops by position what it has. A
call to the application itself is a row that it gets. A call to another service leaves by the outbox, as any other does.
A return completes the caller's promise.

A run of forks (`runs`) leaves as one call of `send_run`, whose turn takes it in whole, or not at all. A service without
such a handler says so, and gets those of this run and of the next SINGLY ones by `send`, one by one, SINGLY_FORKS of
them in one turn, since a turn may send only so much; then it is asked again. So nothing is lost by whichever of two
services is older. What goes to one service goes in order, whatever it is: behind a run that is on its way everything
waits (`Leaving`), and all runs that wait leave as one.

A turn that would send to more services than `limits.targetsMax` fails, and leaves nothing behind, not even a word of
it. So behind each turn that sends something another one looks whether it was sent (`look`), tries it once more if not,
and is told why (`retake`). A call is answered with that; what wants no answer is kept in its order for that service
alone, and tried again every RETRY, which finds that an operator has raised the limit. With KEPT_BYTES_MAX of it the
lane that it came by is told to wait (`What.FULL`), and no other one.

Guarantees: each call reaches the application once and in one order on all replicas; each of its outputs has its effect
once; what the application sent is never refused, whatever it is: behind a row that was refused no other one is taken
in. Does not: know processes, or compare runs (`coordinator`). Imports the author's names and this package.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from datetime import timedelta
from typing import Final

from deathless.base.errors import TargetNotReached, TooLarge
from deathless.execution.author.foreign_methods import METHOD_MAX, METHOD_MIN
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
from deathless.protocols.ambrosia.runs import check, count_of, forks_of, is_run, join, pack
from deathless.sdk import CallFailed, CallRefused, Context, DeathlessError, Map, Service, Struct, field

EARLY_MAX: Final = 1000  # calls that are kept while the application has not begun
JOINED_BYTES: Final = 1 << 20  # of runs that leave as one; one that has more leaves alone
WAITING_MAX: Final = 256  # runs and calls that wait behind runs that are not answered; with more, they go as well
SINGLY: Final = 256  # runs that go one by one to a service that took none
SINGLY_FORKS: Final = 1000  # messages of theirs that one turn sends, well below `limits.operationsMax`
KEPT_BYTES_MAX: Final = 4 << 20  # that are kept for services that can't be sent to; with more, their lanes wait
KEPT_MAX: Final = 4096  # likewise, of runs and single messages
RETRY: Final = timedelta(seconds=10)  # after which they are tried again
SHOWN_MAX: Final = 20  # of these that are named
RETRIED: Final = 16  # services that are tried again at a time


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
    count: int = 0  # of the messages of the run that is in `args`; 0: there is none, this is one call


class Leaving(Struct):
    """What goes to another service, in order: there is one of these from the first run on."""

    waiting: list[int] = field(default_factory=list)  # numbers of those in `outgoing` that are next, in order
    size: int = 0  # bytes of these
    flying: int = 0  # calls with runs that are on their way there, and not answered
    turn: int = 0  # number of the last `leave`, negative once it has begun
    singly: int = 0  # so many runs go one by one
    held: str = ""  # why nothing can be sent there, code first; empty: it can

    @property
    def is_busy(self) -> bool:
        """Whether what comes now has to wait behind something."""
        return self.turn > 0 or self.flying > 0 or bool(self.held)

    @property
    def may_go_on(self) -> bool:
        """Whether a `leave` is to see to what waits.

        Behind runs that are not answered it waits, to leave as one; but not for ever: more of it goes into the outbox
        then, which is bounded, as for a service that is away. Once one of them was not taken, all of them are waited
        for, since what they hold goes one by one then, and first.
        """
        if self.turn > 0 or not self.waiting or self.held:
            return False
        much = self.size >= JOINED_BYTES or len(self.waiting) >= WAITING_MAX
        return not self.flying or (much and not self.singly)


class Shown(Struct):
    """What people are shown of it."""

    begun: bool  # its own first message was logged
    calls: int  # that were given to it and want an answer, ever
    waiting: int  # of these so many have none yet
    strangers: int  # returns that nobody waited for
    sent: int  # calls to other services, ever
    unsent: int  # of these so many name no service, and want no answer
    too_long: int  # its messages that were too long, ever
    refused: int = 0  # calls that were answered with an error, since their service can't be sent to, ever
    kept: int = 0  # runs and messages that wait until their service can be sent to
    kept_bytes: int = 0  # of these
    kept_for: list[str] = field(default_factory=list)  # these services, the first ones, and why


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
    leaving: Map[str, Leaving] = field(default_factory=Map)  # by target: what leaves behind each other
    refused: int = 0  # calls to services that can't be sent to, ever
    unreached: list[str] = field(default_factory=list)  # targets that are held, the next one to be tried first
    full: list[str] = field(default_factory=list)  # lanes that were told to wait
    retry: int = 0  # number of the last `retry`, negative once it has begun


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


@application.handler(shared=True)
def send_run(held: Application, ctx: Context, run: bytes) -> int:
    """Call methods of the application that return nothing, all of a run; gives how many once they are logged."""
    try:
        count = check(run)
    except ValueError as error:
        raise CallRefused(str(error)) from None
    _give_row(held, ctx, run)
    return count


def _check(method: int) -> None:
    if not METHOD_MIN <= method <= METHOD_MAX:
        raise CallRefused(f"method {method} is no method id: those have 32 bits")


def _give(held: Application, ctx: Context, item: Rpc) -> None:
    """Let the application have a call, behind its first message."""
    _give_row(held, ctx, encode_items([item]))


def _give_row(held: Application, ctx: Context, items: bytes) -> None:
    if held.begun:
        ctx.emit(inputs, Given(What.ITEMS, items))
    elif len(held.early) < EARLY_MAX:
        held.early.append(items)
    else:
        raise CallRefused(f"the application has not begun yet, and {EARLY_MAX} calls wait for that")


@application.query
def show(held: Application) -> Shown:
    """Give what was called, and what became of it."""
    kept, kept_bytes = _kept(held)
    told = [f"{target}: {held.leaving[target].held}" for target in held.unreached[:SHOWN_MAX]]
    return Shown(
        held.begun, held.calls, len(held.waiting), held.strangers, held.sent, held.unsent, held.too_long, held.refused,
        kept, kept_bytes, told,
    )  # fmt: skip


# ---- for the application -----------------------------------------------------------------------------------------


@application.input(INPUT)
def emitted(held: Application, ctx: Context, row: Emitted) -> None:
    """Take in what the application sent."""
    if row.what == What.INITIAL:
        _begin(held, ctx, row.items)
        return
    if is_run(row.items):
        _take_run(held, ctx, row)
        return
    to_itself: list[Rpc] = []
    sent: list[int] = []
    items = decode_items(row.items)
    for item in items:
        target = row.target if row.upto and row.target != OTHERS else item.destination
        if isinstance(item, Oversized):
            to_itself += _refuse(held, ctx, target, item)
        elif target == SELF:
            to_itself.append(item)
        elif item.kind in RETURNS:
            _answer(held, ctx, target, item)
        elif why := _held(held, target) if item.kind is Kind.ASYNC else "":
            held.sent += 1
            to_itself.append(_refused(held, target, item.sequence, why))
        else:
            sent += _relay(held, ctx, target, item)
    if sent:
        ctx.fork(application.name, "", "look", {"numbers": sent})
    if to_itself or row.upto or not items:  # one without items asks for a row
        ctx.emit(inputs, Given(What.ITEMS, encode_items(to_itself), row.target, row.upto, row.chain, row.shape))
    if held.unreached and any(_held(held, row.target if row.target != OTHERS else each.destination) for each in items):
        _maybe_full(held, ctx, row)


def _take_run(held: Application, ctx: Context, row: Emitted) -> None:
    """A run is in one lane: it comes back to the application, or leaves for another service, as it stands."""
    items = row.items
    if row.target != SELF:
        held.sent += 1
        number = held.sent
        held.sent += count_of(items) - 1
        held.outgoing[number] = Outgoing(row.target, 0, items, -1, count_of(items))
        _wait_to_leave(held, ctx, row.target, number)
        items = encode_items([])
    ctx.emit(inputs, Given(What.ITEMS, items, row.target, row.upto, row.chain, row.shape))
    if held.unreached and _held(held, row.target):
        _maybe_full(held, ctx, row)


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


def _relay(held: Application, ctx: Context, target: str, item: Rpc) -> list[int]:
    """Have a call to another service leave; gives its number if that is to be looked after."""
    held.sent += 1
    sequence = item.sequence if item.kind is Kind.ASYNC else -1
    held.outgoing[held.sent] = Outgoing(target, item.method, item.arguments, sequence)
    if (leaving := held.leaving.get(target)) is not None and leaving.is_busy:
        _wait_to_leave(held, ctx, target, held.sent)
        return []
    ctx.fork(application.name, "", "relay", {"number": held.sent})
    return [held.sent]


def _wait_to_leave(held: Application, ctx: Context, target: str, number: int) -> None:
    """Have this leave behind what goes there already."""
    leaving = held.leaving.get(target) or Leaving()
    leaving.waiting.append(number)
    leaving.size += len(held.outgoing[number].args)
    _go_on(held, ctx, target, leaving)


def _go_on(held: Application, ctx: Context, target: str, leaving: Leaving) -> None:
    """Have `leave` see to what waits there, if it may, behind all that our own turns have sent so far."""
    if leaving.may_go_on:
        _order_to_leave(held, ctx, target, leaving)
    held.leaving[target] = leaving


def _order_to_leave(held: Application, ctx: Context, target: str, leaving: Leaving) -> None:
    leaving.turn = abs(leaving.turn) + 1
    held.leaving[target] = leaving
    ctx.fork(application.name, "", "leave", {"target": target, "turn": leaving.turn})
    ctx.fork(application.name, "", "look", {"numbers": [], "target": target, "turn": leaving.turn})


@application.handler(shared=True)
async def leave(held: Application, ctx: Context, target: str, turn: int) -> None:
    """Send what waits for a service, once; whoever else calls this changes nothing."""
    leaving = held.leaving.get(target)
    if leaving is None or turn <= 0 or leaving.turn != turn:
        return
    leaving.turn = -turn
    if leaving.flying and leaving.singly:  # one was not taken meanwhile: the last one that is answered goes on
        held.leaving[target] = leaving
        return
    if leaving.held:
        _let_go(held, ctx, target, leaving)
    numbers = _next_of(held, leaving)
    outgoing = [held.outgoing[number] for number in numbers]
    del leaving.waiting[: len(numbers)]
    leaving.size -= sum(len(each.args) for each in outgoing)
    if outgoing and outgoing[0].sequence >= 0:  # a call, which waits for its answer beside what comes behind it
        ctx.fork(application.name, "", "relay", {"number": numbers[0]})
        ctx.fork(application.name, "", "look", {"numbers": numbers})
    elif outgoing and not outgoing[0].count:
        _send(held, ctx, held.outgoing.pop(numbers[0]))
    elif outgoing:
        for number in numbers:
            held.outgoing.pop(number)
        if leaving.singly:
            leaving.singly -= 1
            _send_singly(held, ctx, target, leaving, dict(zip(numbers, outgoing, strict=True)))
        else:
            leaving.flying += 1
            _go_on(held, ctx, target, leaving)
            taken = await _sent_whole(ctx, target, join(each.args for each in outgoing))
            leaving = held.leaving[target]
            leaving.flying -= 1
            leaving.singly = 0 if taken else SINGLY
            if not taken:
                _send_singly(held, ctx, target, leaving, dict(zip(numbers, outgoing, strict=True)))
    _go_on(held, ctx, target, leaving)


def _next_of(held: Application, leaving: Leaving) -> list[int]:
    """Give what leaves next: one call, or runs that are behind each other, as far as there is room in one."""
    numbers: list[int] = []
    size = 0
    for number in leaving.waiting:
        each = held.outgoing[number]
        size += len(each.args)
        if numbers and (not each.count or size > JOINED_BYTES):
            break
        numbers.append(number)
        if not each.count:
            break
    return numbers


async def _sent_whole(ctx: Context, target: str, run: bytes) -> bool:
    """Have another service take a run; False: it did not, and has nothing of it."""
    name, _, key = target.partition("/")
    if key:  # an application has none
        return False
    try:
        taken = await ctx.call(service_of(name), "", "send_run", {"run": run})
    except DeathlessError:  # it has no such handler, refuses the run, or is no service
        return False
    return isinstance(taken, int) and taken == count_of(run)


def _send_singly(held: Application, ctx: Context, target: str, leaving: Leaving, runs: dict[int, Outgoing]) -> None:
    """Send the messages of runs one by one, as many as one turn sends; the others wait again, in their place."""
    left = SINGLY_FORKS
    for number, run in runs.items():
        if leaving.waiting and leaving.waiting[0] < number:
            left = 0  # behind what is left of an earlier one
        forks = forks_of(run.args)
        for each in forks[:left]:
            _send(held, ctx, Outgoing(target, each.method, each.arguments, -1))
        if rest := forks[left:]:
            held.outgoing[number] = Outgoing(target, 0, pack(rest), -1, len(rest))
            insort(leaving.waiting, number)
            leaving.size += len(held.outgoing[number].args)
        left -= len(forks) - len(rest)


@application.handler(shared=True)
async def relay(held: Application, ctx: Context, number: int) -> None:
    """Call another service for the application, once; whoever else calls this changes nothing.

    That service is called by its handlers `call` or `send`, with method and arguments, at the key behind a slash. A
    name that no service can have stands for the one that `instance_names.service_of` gives.
    """
    outgoing = held.outgoing.get(number)
    if outgoing is None or outgoing.count or _waits(held.leaving.get(outgoing.target), number):
        return  # `leave` sends it, in its order
    if outgoing.sequence < 0 and _held(held, outgoing.target):
        return  # it is kept, behind what is kept already
    held.outgoing.pop(number)
    if outgoing.sequence < 0:
        _send(held, ctx, outgoing)
        return
    name, _, key = outgoing.target.partition("/")
    service = service_of(name)
    arguments = {"method": outgoing.method, "args": outgoing.args}
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


def _waits(leaving: Leaving | None, number: int) -> bool:
    """Whether a message is in the order of what leaves."""
    if leaving is None:
        return False
    at = bisect_left(leaving.waiting, number)
    return leaving.waiting[at : at + 1] == [number]


def _send(held: Application, ctx: Context, outgoing: Outgoing) -> None:
    """Send one message that wants no answer."""
    name, _, key = outgoing.target.partition("/")
    try:
        ctx.fork(service_of(name), key, "send", {"method": outgoing.method, "args": outgoing.args})
    except DeathlessError:  # it names no service
        held.unsent += 1


def _returned(outgoing: Outgoing, kind: Kind, payload: bytes) -> Given:
    """Give the row by which the application hears what its call came to."""
    item = make_return(SELF, kind, payload, name=outgoing.target, sequence=outgoing.sequence)
    return Given(What.ITEMS, encode_items([item]))


# ---- what can't be sent -------------------------------------------------------------------------------------------


def _held(held: Application, target: str) -> str:
    """Why nothing can be sent to a target; empty: it can, as far as is known."""
    leaving = held.leaving.get(target) if held.unreached else None
    return leaving.held if leaving is not None else ""


@application.handler(shared=True)
def look(held: Application, ctx: Context, numbers: list[int], target: str = "", turn: int = 0) -> None:
    """Look whether what was to be sent was, and try it again if not; whoever else calls this changes nothing."""
    for number in numbers:
        if number in held.outgoing:
            ctx.fork(application.name, "", "retake", {"number": number})
    leaving = held.leaving.get(target)
    if leaving is not None and turn > 0 and leaving.turn == turn:
        ctx.fork(application.name, "", "retake", {"number": 0, "target": target, "turn": turn})


@application.handler(shared=True)
async def retake(held: Application, ctx: Context, number: int, target: str = "", turn: int = 0) -> None:
    """Try to send what was not sent; what can't be sent is answered or kept. Whoever else calls this does no harm."""
    method, arguments = ("leave", {"target": target, "turn": turn}) if target else ("relay", {"number": number})
    try:
        await ctx.call(application.name, "", method, arguments)
    except DeathlessError as error:
        why = f"{TargetNotReached.code} {error}"
    else:
        why = ""
    outgoing = held.outgoing.get(number)
    leaving = held.leaving.get(target)
    if outgoing is not None and not outgoing.count and (why := why or _held(held, outgoing.target)):
        _keep(held, ctx, number, outgoing, why)
    elif why and leaving is not None and turn > 0 and leaving.turn == turn:
        leaving.turn = -turn
        _hold(held, ctx, target, leaving, why)


def _keep(held: Application, ctx: Context, number: int, outgoing: Outgoing, why: str) -> None:
    """Answer a message that can't be sent, or keep it, in its order."""
    if outgoing.sequence >= 0:
        held.outgoing.pop(number)
        item = _refused(held, outgoing.target, outgoing.sequence, why)
        ctx.emit(inputs, Given(What.ITEMS, encode_items([item])))
        return
    leaving = held.leaving.get(outgoing.target) or Leaving()
    if not _waits(leaving, number):
        insort(leaving.waiting, number)
        leaving.size += len(outgoing.args)
    _hold(held, ctx, outgoing.target, leaving, why)


def _refused(held: Application, target: str, sequence: int, why: str) -> Rpc:
    """Give what a program is told whose call can't be made."""
    held.refused += 1
    return make_return(SELF, Kind.EXCEPTION, why.encode(), name=target, sequence=sequence)


def _hold(held: Application, ctx: Context, target: str, leaving: Leaving, why: str) -> None:
    """Keep what goes to a target: say so, answer the calls among it, and have it tried again."""
    if not leaving.held:
        for number in [each for each in leaving.waiting if held.outgoing[each].sequence >= 0]:
            outgoing = held.outgoing.pop(number)
            leaving.waiting.remove(number)
            leaving.size -= len(outgoing.args)
            item = _refused(held, target, outgoing.sequence, why)
            ctx.emit(inputs, Given(What.ITEMS, encode_items([item])))
        held.unreached.append(target)
    leaving.held = why
    held.leaving[target] = leaving
    ctx.emit(inputs, Given(What.HELD, encode_items([]), target))
    if held.retry <= 0:
        held.retry = 1 - held.retry
        ctx.fork(application.name, "", "retry", {"turn": held.retry})


def _let_go(held: Application, ctx: Context, target: str, leaving: Leaving) -> None:
    """A target can be sent to: what is kept for it leaves, and lanes that wait may go on."""
    leaving.held = ""
    held.leaving[target] = leaving
    held.unreached.remove(target)
    ctx.emit(inputs, Given(What.ROOM, encode_items([]), target))
    if not _is_full(held, 2):
        for lane in held.full:
            ctx.emit(inputs, Given(What.ROOM, encode_items([]), lane))
        held.full = []


def _kept(held: Application) -> tuple[int, int]:
    """Give how many runs and messages are kept, and their bytes."""
    each = [held.leaving[target] for target in held.unreached]
    return sum(len(one.waiting) for one in each), sum(one.size for one in each)


def _is_full(held: Application, share: int = 1) -> bool:
    """Whether as much is kept as may be, or this share of it."""
    count, size = _kept(held)
    return count >= KEPT_MAX // share or size >= KEPT_BYTES_MAX // share


def _maybe_full(held: Application, ctx: Context, row: Emitted) -> None:
    """Have the lane of a row wait if too much is kept; impulses have none."""
    if row.upto and _is_full(held):
        if row.target not in held.full:
            held.full.append(row.target)
        ctx.emit(inputs, Given(What.FULL, encode_items([]), row.target))


@application.handler(shared=True)
async def retry(held: Application, ctx: Context, turn: int) -> None:
    """Try some of what is kept again after a while; whoever else calls this does no harm."""
    if turn <= 0 or held.retry != turn:
        return
    await ctx.timer(after=RETRY)
    if held.retry != turn:
        return
    held.retry = -turn
    tried = held.unreached[:RETRIED]
    held.unreached = held.unreached[RETRIED:] + tried
    for target in tried:
        leaving = held.leaving[target]
        if leaving.turn <= 0:
            _order_to_leave(held, ctx, target, leaving)
    if held.unreached:
        held.retry = turn + 1
        ctx.fork(application.name, "", "retry", {"turn": held.retry})
