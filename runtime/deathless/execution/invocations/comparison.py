"""Whether a handler that is run again asks for the same, and leaves the same state.

Where the code is that which wrote the checkpoint, the same is the same bytes: whatever else is there has diverged (I6).
Where it is other code, the same is the same value: arguments and states are decoded and encoded by this code before
they are compared, so that libraries which encode otherwise, or an argument with a default more, strand nothing; and
what is policy is not looked at (see turn.asked_operation).

Guarantees: a function of the code and the bytes. Does not: raise for bytes that do not fit: they differ. Imports base
and codec.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import msgspec
from msgspec.structs import replace

from deathless.base.topics.row_schema import RowSchema, parse_row_schema
from deathless.execution.handlers.entities import Entities
from deathless.execution.handlers.plan import Plan
from deathless.execution.maps.map import view_of
from deathless.execution.maps.table import Look
from deathless.execution.turn.asked_operation import (
    AskedCall,
    AskedComplete,
    AskedContinue,
    AskedFork,
    AskedOperation,
    AskedRun,
    decode_asked,
)
from deathless.execution.turn.topic import decode_emitted
from deathless.execution.turn.turn import Settings
from deathless.execution.values.failure import FATAL
from deathless.execution.values.ordered import encode_any, ordered_encoder


class Comparison:
    """Compares.

    Args:
        plans: of all handlers of the service, by method.
        entities: decode and encode states.
        settings: name the service, and its activities.
        strict: True: the checkpoint is of this code.
    """

    __slots__ = ("_activities", "_entities", "_plans", "_service", "_topics", "strict")

    def __init__(self, plans: Mapping[bytes, Plan], entities: Entities, settings: Settings, *, strict: bool) -> None:
        self._plans = plans
        self._entities = entities
        self._service = settings.service
        self._topics = settings.topics
        self._activities = {spec.name: spec for spec in settings.activities.values()}
        self.strict = strict

    def has_activity(self, name: str) -> bool:
        """Does the service have an activity of that name?"""
        return name in self._activities

    def same_operation(self, expected: bytes, found: bytes) -> bool:
        """Are these records of the same operation?

        Raises: CorruptCheckpoint for `expected`.
        """
        if expected == found:
            return True
        if self.strict:
            return False
        one, other = decode_asked(expected), decode_asked(found)
        if type(one) is not type(other):
            return False
        read = self._reader(one, other)
        one, other = _without_policy(one), _without_policy(other)
        if one == other:
            return True
        if read is None:
            return False
        apart = replace(one, **_arguments(one, b"")), replace(other, **_arguments(other, b""))
        return apart[0] == apart[1] and _same(read, *(_bytes_of(each) for each in (one, other)))

    def same_result(self, method: str, expected: bytes, found: bytes) -> bool:
        """Are these the same result of a handler? One that is not there gives results of no type."""
        if expected == found:
            return True
        plan = self._plans.get(method.encode())
        if plan is None:
            return _same(_any_again, expected, found)
        return not self.strict and _same(lambda data: plan.encode_result(plan.check_result(data)), expected, found)

    def same_state(self, expected: bytes | None, found: bytes) -> bool:
        """Are these the same state of a key? The chain of its maps is not looked at: it stands for bytes."""
        if expected == found:
            return True
        return not self.strict and expected is not None and _same(self._state_again, expected, found)

    def _state_again(self, state: bytes) -> bytes:
        states = self._entities.states
        entity = self._entities.begin(state, b"", Look(self._entities.maps))
        for field in states.maps:
            view_of(getattr(entity, field.name)).chain = b""
        return states.encode(entity)

    def _reader(self, former: AskedOperation, asked: AskedOperation) -> Callable[[bytes], bytes] | None:
        """Give what brings the bytes of an operation's values into one form; None: it has none."""
        match asked:
            case AskedFork() if asked.service in self._topics:
                return partial(_row_again, self._topics[asked.service].schema, _bytes_of(former))
            case AskedCall() | AskedFork():
                return self._of_handler(asked.method if asked.service == self._service else "")
            case AskedContinue():
                return self._of_handler(asked.method)
            case AskedRun():
                spec = self._activities.get(asked.activity)
                if spec is None:
                    return _any_again
                decode = msgspec.msgpack.Decoder(spec.args_type).decode
                encode = ordered_encoder()
                return lambda data: encode(decode(data))
            case AskedComplete():
                return _any_again
            case _:
                return None

    def _of_handler(self, method: str) -> Callable[[bytes], bytes]:
        plan = self._plans.get(method.encode())
        if plan is None:
            return _any_again
        return lambda data: plan.encode_arguments(plan.decode_arguments(data))


def _row_again(schema: RowSchema, former: bytes, data: bytes) -> bytes:
    """Give of a row what the former row had columns for: those that came since may hold anything. Raises: ValueError.

    Args:
        schema: of rows that this code publishes.
        former: the message with the former row.
        data: the message with this row, or the former one itself.
    """
    columns = parse_row_schema(decode_emitted(former).schema)
    if why := schema.misfit(columns):
        raise ValueError(why)
    emitted = decode_emitted(data)
    row = emitted.row[: len(columns.columns)]
    return encode_any([emitted.time_us, *row, *[None] * (len(columns.columns) - len(row))])


def _any_again(data: bytes) -> bytes:
    return encode_any(msgspec.msgpack.decode(data))


def _same(again: Callable[[bytes], bytes], one: bytes, other: bytes) -> bool:
    try:
        return again(one) == again(other)
    except FATAL:
        raise
    except BaseException:  # noqa: BLE001  decoding runs the author's `__post_init__`, which may raise anything
        return False


def _without_policy(asked: AskedOperation) -> AskedOperation:
    match asked:
        case AskedCall():
            return replace(asked, after_us=0, at_us=0)
        case AskedRun():
            return replace(asked, timeout_us=0, heartbeat_us=0, at_most_once=False)
        case _:
            return asked


def _bytes_of(asked: AskedOperation) -> bytes:
    match asked:
        case AskedCall() | AskedFork() | AskedRun() | AskedContinue():
            return asked.arguments
        case AskedComplete():
            return asked.reply[1:]
        case _:
            return b""


def _arguments(asked: AskedOperation, data: bytes) -> dict[str, bytes]:
    return {"reply": data} if isinstance(asked, AskedComplete) else {"arguments": data}
