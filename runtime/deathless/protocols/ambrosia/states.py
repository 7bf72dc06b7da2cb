"""The one table of the AMBROSIA client protocol: what may be ordered, and what an application may send, in each state.

    CONNECTING        the sockets are not both there
    WAITING           connected; the owner has not said whether this is a first start
    STARTING          11 was sent at the first start: INITIAL is due
    INITIALIZING      INITIAL is here: the first checkpoint is due
    LOADING           a checkpoint is being sent to the application
    FOLLOWING         it gets what is logged, and does not lead
    TESTING           12 was sent: as FOLLOWING, but it never leads
    TESTING_SNAPSHOT  2 was sent to one of these, behind its log: a checkpoint is due, which says that all was emitted
    SNAPSHOT          2 was sent to one that does not lead: a checkpoint is due
    LEADING           it leads
    LEADING_SNAPSHOT  2 was sent to one that leads, or 11 behind its log: a checkpoint is due
    SWITCHING         10 was sent: it goes over to its new code, and a checkpoint of that is due
    SWITCHED          that checkpoint is here: the upgrade is not in the log yet
    GONE              for ever

The page's sequences are ways through it ("Communication Protocols" of the page):

    first start                  WAITING -11-> STARTING -INITIAL-> INITIALIZING -CHECKPOINT-> LEADING
    recovery, active/active      WAITING -8-> LOADING -> FOLLOWING, log, -15-> LEADING
    recovery, standalone         WAITING -8-> LOADING -> FOLLOWING, log, -11-> LEADING_SNAPSHOT -CHECKPOINT-> LEADING
    checkpointing secondary      FOLLOWING -2-> SNAPSHOT -CHECKPOINT-> FOLLOWING
    recovery and upgrade         FOLLOWING, log, -10-> SWITCHING -CHECKPOINT-> SWITCHED -> LEADING
    repro test                   WAITING -8-> LOADING -> FOLLOWING, log
    upgrade test                 WAITING -8-> LOADING -> FOLLOWING -12-> TESTING, log

Both tests end with a checkpoint that nobody keeps (2): what was emitted stands before it.

An application learns that it leads by a message, so it may emit an impulse from the moment at which that was sent. A
snapshot of one that leads takes impulses too: they come from outside, and it does not know yet that one is due.

Does not: change state; `machine` does. Imports nothing of ours.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class State(enum.Enum):
    """Where an application stands; see the module."""

    CONNECTING = enum.auto()
    WAITING = enum.auto()
    STARTING = enum.auto()
    INITIALIZING = enum.auto()
    LOADING = enum.auto()
    FOLLOWING = enum.auto()
    TESTING = enum.auto()
    TESTING_SNAPSHOT = enum.auto()
    SNAPSHOT = enum.auto()
    LEADING = enum.auto()
    LEADING_SNAPSHOT = enum.auto()
    SWITCHING = enum.auto()
    SWITCHED = enum.auto()
    GONE = enum.auto()


class Order(enum.Enum):
    """What the owner may want of an application."""

    BEGIN = enum.auto()
    LOAD = enum.auto()
    DELIVER = enum.auto()
    TAKE_CHECKPOINT = enum.auto()
    LEAD = enum.auto()
    LEAD_WITH_CHECKPOINT = enum.auto()
    TEST_UPGRADE = enum.auto()
    HOLD_OUTPUTS = enum.auto()
    UPGRADE = enum.auto()
    COMMIT = enum.auto()


class Sent(enum.Enum):
    """What an application may send."""

    ATTACH = enum.auto()
    OUTPUT = enum.auto()  # a call, fork or return
    IMPULSE = enum.auto()
    ASK_CHECKPOINT = enum.auto()
    INITIAL = enum.auto()
    CHECKPOINT = enum.auto()


class Answer(enum.Enum):
    """What becomes of it; what is not in the table ends the application."""

    TAKEN = enum.auto()
    DROPPED = enum.auto()


ORDERS: Final[Mapping[State, Mapping[Order, State]]] = {
    State.CONNECTING: {},
    State.WAITING: {Order.BEGIN: State.STARTING, Order.LOAD: State.LOADING},
    State.STARTING: {},
    State.INITIALIZING: {},
    State.LOADING: {},
    State.FOLLOWING: {
        Order.DELIVER: State.FOLLOWING,
        Order.TAKE_CHECKPOINT: State.SNAPSHOT,
        Order.LEAD: State.LEADING,
        Order.LEAD_WITH_CHECKPOINT: State.LEADING_SNAPSHOT,
        Order.TEST_UPGRADE: State.TESTING,
        Order.HOLD_OUTPUTS: State.FOLLOWING,
        Order.UPGRADE: State.SWITCHING,
    },
    State.TESTING: {Order.DELIVER: State.TESTING, Order.TAKE_CHECKPOINT: State.TESTING_SNAPSHOT},
    State.TESTING_SNAPSHOT: {},
    State.SNAPSHOT: {},
    State.LEADING: {Order.DELIVER: State.LEADING, Order.TAKE_CHECKPOINT: State.LEADING_SNAPSHOT},
    State.LEADING_SNAPSHOT: {},
    State.SWITCHING: {},
    State.SWITCHED: {Order.COMMIT: State.LEADING},
    State.GONE: {},
}
"""State to order to state. LOADING ends with the last byte of the checkpoint, which its owner gives."""

_EARLY: Final = {Sent.ATTACH: Answer.TAKEN}
_FOLLOWING: Final = {**_EARLY, Sent.OUTPUT: Answer.TAKEN, Sent.ASK_CHECKPOINT: Answer.DROPPED}
_LEADING: Final = {**_EARLY, Sent.OUTPUT: Answer.TAKEN, Sent.IMPULSE: Answer.TAKEN, Sent.ASK_CHECKPOINT: Answer.TAKEN}
_LEADING_BUT_DUE: Final = {**_LEADING, Sent.ASK_CHECKPOINT: Answer.DROPPED}
_CHECKPOINT: Final = {Sent.CHECKPOINT: Answer.TAKEN}

APPLICATION: Final[Mapping[State, Mapping[Sent, Answer]]] = {
    State.CONNECTING: _EARLY,
    State.WAITING: _EARLY,
    State.STARTING: {**_EARLY, Sent.INITIAL: Answer.TAKEN},
    State.INITIALIZING: {**_EARLY, **_CHECKPOINT},
    State.LOADING: _EARLY,
    State.FOLLOWING: _FOLLOWING,
    State.TESTING: _FOLLOWING,
    State.TESTING_SNAPSHOT: {**_FOLLOWING, **_CHECKPOINT},
    State.SNAPSHOT: {**_FOLLOWING, **_CHECKPOINT},
    State.LEADING: _LEADING,
    State.LEADING_SNAPSHOT: {**_LEADING_BUT_DUE, **_CHECKPOINT},
    State.SWITCHING: {**_LEADING_BUT_DUE, **_CHECKPOINT},
    State.SWITCHED: _LEADING_BUT_DUE,
    State.GONE: {},
}
"""State to what was sent to what becomes of it."""

AFTER_CHECKPOINT: Final[Mapping[State, State]] = {
    State.INITIALIZING: State.LEADING,
    State.SNAPSHOT: State.FOLLOWING,
    State.TESTING_SNAPSHOT: State.TESTING,
    State.LEADING_SNAPSHOT: State.LEADING,
    State.SWITCHING: State.SWITCHED,
}
"""Where the last byte of an application's checkpoint leads."""
