"""Whether what two codes did is the same to those who see it, and both in words where it is not.

Whatever the former code gave is brought into the words of the new one first: by the author's migrations and renamings,
and then by decoding and encoding both sides with the new code's types. So a field with a default more is no difference,
and neither is a library that encodes otherwise.

    replies     a value is compared as the handler's result, or as what `accepts` says that former callers expect; a
                field that the result does not have any more is a difference; an error by code, type and text
    asked       calls, forks, timers, activities, promises in their order, without policy (see turn.asked_operation)
    states      as values; the hash over the history of a map is left out

Guarantees: a function of the code and the bytes. Does not: raise for bytes that do not fit: they differ. Imports base
and codec.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from deathless.codec.untrusted import UNREADABLE, read_msgpack
from deathless.codec.wire import ReplyError, Status
from deathless.execution.author.service import Service
from deathless.execution.declared.unknown_fields import Finder, unknown_fields, unknown_in
from deathless.execution.interface.interface import Interface
from deathless.execution.invocations.comparison import Comparison
from deathless.execution.invocations.translation import Translator
from deathless.execution.migration.determinism import first_difference, shown_value
from deathless.execution.rehearsal.findings import cut
from deathless.execution.turn.asked_operation import decode_asked, name_of, tell_apart
from deathless.execution.values.failure import BUGS, FATAL
from deathless.execution.values.ordered import encode_any

_OK: Final = bytes([Status.OK])
_NOTHING: Final = "nothing more"
Pair = tuple[str, str]
"""What was expected, and what was found, in words."""


class Sameness:
    """Compares what the former code did with what the new one did.

    Args:
        service: with the new code.
        before: interface of the former code.
        comparison: by the new code's types.
        translator: from the words of the former code.
    """

    def __init__(self, service: Service, before: Interface, comparison: Comparison, translator: Translator) -> None:
        self._comparison = comparison
        self._translator = translator
        self._expected = {
            handler: msgspec.msgpack.Decoder(accepted.result_type).decode
            for (handler, from_), accepted in service.declared.accepted.items()
            if from_ == before.version and accepted.result_type is not ...
        }
        self._service = service
        self._finders: dict[str, Finder | None] = {}  # of fields that results do not have, by handler

    def reply(self, handler: str, expected: bytes, found: bytes) -> str:
        """Give the kind of difference between two replies; empty: there is none.

        Args:
            handler: whose they are, its name in the new code.
            expected: of the former code: status byte, body.
            found: of the new code.
        """
        if expected == found:
            return ""
        if expected[:1] != found[:1]:
            return "Raised" if expected[:1] == _OK else "ReplyDiffers"
        if expected[:1] != _OK:
            return "Raised" if _is_bug(found) and not _is_bug(expected) else "ReplyDiffers"
        decode = self._expected.get(handler)
        if decode is not None:
            try:
                same = encode_any(decode(expected[1:])) == encode_any(decode(found[1:]))
            except FATAL:
                raise
            except BaseException:  # noqa: BLE001  decoding runs the author's `__post_init__`
                same = False
        else:
            same = self._comparison.same_result(handler, expected[1:], found[1:]) and not self._loses(handler, expected)
        return "" if same else "ReplyDiffers"

    def _loses(self, handler: str, expected: bytes) -> bool:
        """Has a former result a field that results do not have any more? A decoder passes over it."""
        if handler not in self._finders:
            spec = self._service.specs.get(handler)
            self._finders[handler] = None if spec is None else unknown_fields(spec.result_type)
        return bool(unknown_in(self._finders[handler], expected[1:]))

    def asked(self, expected: Sequence[bytes], found: Sequence[bytes]) -> Pair | None:
        """Give the first difference between what two turns asked for; None: there is none."""
        for at in range(max(len(expected), len(found))):
            before = self._translated(expected[at]) if at < len(expected) else b""
            now = found[at] if at < len(found) else b""
            if not (before and now):
                told = name_of(decode_asked(before or now))
                return (told, _NOTHING) if before else (_NOTHING, told)
            if not self._comparison.same_operation(before, now):
                return tell_apart(decode_asked(before), decode_asked(now))
        return None

    def _translated(self, asked: bytes) -> bytes:
        try:
            return self._translator.asked(asked)
        except FATAL:
            raise
        except BaseException:  # noqa: BLE001  it is the author's code; what it can't translate is compared as it is
            return asked

    def state(self, expected: bytes | None, found: bytes | None) -> Pair | None:
        """Give the difference between two states of a key; None: there is none."""
        if expected == found:
            return None
        if expected is None or found is None:
            return shown_state(expected), shown_state(found)
        if self._comparison.same_state(expected, found):
            return None
        return told_apart(expected, found)


def _is_bug(reply: bytes) -> bool:
    """Is this the reply of a turn that its author did not mean to end so?"""
    try:
        return read_msgpack(reply[1:], ReplyError).code in BUGS
    except UNREADABLE:
        return False


def same_item(expected: bytes | None, found: bytes | None) -> bool:
    """Are these the same item of a map? None: there is none."""
    if expected == found:
        return True
    if expected is None or found is None:
        return False
    return encode_any(msgspec.msgpack.decode(expected)) == encode_any(msgspec.msgpack.decode(found))


def told_apart(expected: bytes, found: bytes) -> Pair:
    """Give the first field in which two encoded values differ, and both values of it."""
    field, before, now = first_difference(expected, found)
    name = f"{field} = " if field else ""
    return name + shown_value(before), name + shown_value(now)


def shown_state(state: bytes | None) -> str:
    """Give a state for people."""
    return "no state" if state is None else shown_value(msgspec.msgpack.decode(state))


def shown_reply(reply: bytes) -> str:
    """Give a reply for people."""
    if not reply:
        return "no reply yet"
    try:
        if reply[:1] == _OK:
            return shown_value(read_msgpack(reply[1:], object))
        error = read_msgpack(reply[1:], ReplyError)
    except UNREADABLE:
        return f"{len(reply)} bytes that can't be read"
    return cut(f"{error.code} {error.type}: {error.text}")
