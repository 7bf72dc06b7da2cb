"""Errors of handlers, of what they call, and of what drivers deliver for them.

`errors` draws the whole tree, and everybody imports them from there. Imports the kinds of errors.
"""

from __future__ import annotations

from deathless.base.error_tree.kinds import Invalid


class HandlerFailed(Invalid):
    """The handler raised an unintended exception: a bug of the service. Its turn was rolled back.

    The reply is recorded (I5); the traceback is in the log of the replica that was primary.
    """

    code = "DL3014"
    http_status = 500
    exit_code = 70
    remedy = "the service's author finds the traceback with `deathless logs --level error`"
    kind: str = ""  # type name of the exception, as recorded; empty where it was not told


class CallRefused(HandlerFailed):
    """The handler refused the call on purpose; its turn was rolled back and this reply recorded (I5).

    An author raises it, or an exception derived from it.
    """

    code = "DL3048"
    http_status = 409
    exit_code = 64
    remedy = ""


class ForbiddenInTurn(Invalid):
    """A handler called a function that ends, copies, signals, limits or changes its process; raised by that call."""

    code = "DL3032"
    http_status = 500
    exit_code = 70
    remedy = "a handler may only change its state and return a result; do anything else in an activity"


class ResultUnreadable(Invalid):
    """The call was applied, but its result can't be given to this caller."""

    code = "DL3033"
    http_status = 500
    exit_code = 70
    remedy = "the call was applied: fix the handler's result, and do not send the call again under another key"


class Parked(Invalid):
    """The message killed its handler's process too often and was parked (I11)."""

    code = "DL3015"
    http_status = 422
    remedy = "see `deathless parked`; fix the handler"


class DeliveryRefused(Invalid):
    """A driver's receiver permanently refuses a message: a retry would be refused again.

    Attributes:
        position: of the message; 0: it came over the wire, and its text says where.
        why: without the position.
    """

    code = "DL3040"
    http_status = 422
    remedy = "a waiting handler gets this error; for a fork see `onRefusal`"

    def __init__(self, why: str = "", *, position: int = 0) -> None:
        super().__init__(f"message {position}: {why}" if position else why)
        self.position = position
        self.why = why


class DeliveryGivenUp(Invalid):
    """A driver has given up a message: it was tried too often, is too old, or others need its room."""

    code = "DL3044"
    remedy = (
        "see `deathless undelivered list` (in a cluster `kubectl deathless undelivered`), and send it again from there "
        "once its receiver accepts it"
    )


class NotUndelivered(Invalid):
    """No message with this ID is among those that drivers gave up."""

    code = "DL3045"
    remedy = (
        "see `deathless undelivered list` (in a cluster `kubectl deathless undelivered`); another operator may have "
        "handled it"
    )


class NotParked(Invalid):
    """Nothing is parked under that LSN, or the message parked there can't be run again."""

    code = "DL3026"
    http_status = 409
    remedy = "see `deathless parked`; call the handler again if the work is still wanted"


class NotUnsettled(Invalid):
    """No activity of that invocation and operation is listed as one of unknown outcome."""

    code = "DL3028"
    http_status = 409
    remedy = "see `deathless invocations unknown`; another operator may have settled it"


class InvocationUnknown(Invalid):
    """No invocation with that ID runs, and no result of it is stored."""

    code = "DL3017"
    http_status = 404
    remedy = "find out by a query what was applied"


class CallFailed(Invalid):
    """A call that a handler made failed.

    Attributes:
        failure_code: of the error, as in `docs/errors/`.
        kind: type name of the exception there.
        text: what it said.
    """

    code = "DL3018"
    http_status = 409

    def __init__(self, text: str = "", *, failure_code: str = "", kind: str = "") -> None:
        super().__init__(f"{failure_code} {kind}: {text}" if failure_code else text)
        self.failure_code = failure_code or self.code
        self.kind = kind or type(self).__name__
        self.text = text


class ActivityFailed(CallFailed):
    """An activity gave no result: it raised, its process ended, it exceeded its time limit, or gave no sign of life."""

    code = "DL3030"
    http_status = 500
    exit_code = 70


class NotRetryable(Invalid):
    """An activity can't succeed, however often it is tried: it is not retried, and its handler gets ActivityFailed.

    An author's activity raises it, or an exception derived from it. What an activity gave counts as such when it can't
    be its result: it has no encoding, does not fit the declared type or is too large; and so do arguments that its
    declared types refuse, and an activity that the code does not have.
    """

    code = "DL3034"
    http_status = 409


class Cancelled(Invalid):
    """Nobody wants the result any more: the caller, the handler itself or an operator cancelled it."""

    code = "DL3019"
    http_status = 409


class CallCycle(CallFailed):
    """A call would wait for a key that waits for it."""

    code = "DL3021"


class DeadlineExceeded(CallFailed):
    """No reply came before the call's deadline; the call may have been applied."""

    code = "DL3022"


class InvalidAwait(Invalid):
    """A handler awaited something that is not an operation of its context, or waits where it can't."""

    code = "DL3023"
    http_status = 500
    exit_code = 70
    remedy = "await only what ctx.call, ctx.timer, ctx.run, ctx.promise, ctx.gather and ctx.race return"


class HandlerGone(Invalid):
    """A message was taken, waited for its key, and the code that runs when its turn comes has no such handler."""

    code = "DL3024"
    http_status = 410
    remedy = "call a handler that the service has now; nothing of this call was done"


class OutcomeDiffers(Invalid):
    """A test came to another outcome because a process was killed in the middle of it."""

    code = "DL3060"
    remedy = (
        "what the point interrupts is done twice, or not at all; `kill_everywhere(..., outcome=...)` says what counts"
    )
