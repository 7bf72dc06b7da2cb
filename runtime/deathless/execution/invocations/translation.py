"""What a suspended handler kept, from the words of former code into those of this one.

A new version of a service may hold its state in another shape and call its handlers by other names. What its
checkpoint keeps is in the words of the version before. A Translation gives one for the other, and `translate` applies
it to all that is kept of an invocation before it is run again and compared. Who migrates a service derives from it.

Guarantees: `translate` changes nothing but what the translation gave something else for. Does not: translate the state
of keys (who calls has done that), or a record that is held (it stays as it is). Imports base and codec.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from deathless.execution.author.changes import Carried
from deathless.execution.invocations.journal import (
    Looked,
    Received,
    SuspendedInvocation,
    SuspendedMessage,
    SuspendedReply,
    SuspendedSchedule,
    state_hash,
)
from deathless.execution.turn.asked_operation import (
    AskedCall,
    AskedContinue,
    AskedFork,
    AskedOperation,
    AskedRun,
    decode_asked,
    encode_asked,
)


class Translation:
    """One that leaves everything as it is; derived classes give what is other, as a function of what they are given.

    Whatever a method raises holds the invocation that it was for (misfit Untranslated).

    Args:
        version: of the code whose words are kept; 0: the one that they are for.
    """

    def __init__(self, version: int = 0) -> None:
        self.version = version

    def state(self, key: bytes, state: bytes) -> bytes:
        """Give the encoded state of a key in the new shape."""
        del key
        return state

    def item(self, key: bytes, field: str, item: bytes, value: bytes) -> bytes:
        """Give an encoded item of a map in the new shape.

        Args:
            key: whose map it is.
            field: of the state, which holds the map.
            item: its own key, encoded (see codec.map_entries).
            value: what it is, encoded.
        """
        del key, field, item
        return value

    def handler(self, method: str) -> str:
        """Give the new name of a handler of the own service."""
        return method

    def arguments(self, method: str, arguments: bytes) -> bytes:
        """Give the arguments of a message to a handler of the own service, which had the name `method`."""
        del method
        return arguments

    def activity(self, name: str) -> str:
        """Give the new name of an activity."""
        return name

    def activity_arguments(self, name: str, arguments: bytes) -> bytes:
        """Give the arguments of an activity, which had the name `name`."""
        del name
        return arguments

    def schedule(self, name: str) -> str:
        """Give the new name of a schedule."""
        return name

    def carried(self, method: str) -> Carried | None:
        """Give how a suspended handler is carried that does not fit, by its former name; None: it is not."""
        del method
        return None


IDENTITY: Final = Translation()


class Translator:
    """Applies a translation.

    Args:
        translation: what it says.
        service: the own one's name: handlers of others keep their names.
        version: of the code that the words are for; 0: they are kept on, as if by the code that kept them.
    """

    __slots__ = ("_service", "_translation", "_version", "idle")

    def __init__(self, translation: Translation, service: str, version: int = 0) -> None:
        self._translation = translation
        self._service = service
        self._version = version
        self.idle = type(translation) is Translation  # True: it changes no words

    def carried(self, method: str) -> Carried | None:
        """Give how a suspended handler is carried, by its former name; None: it is not."""
        return self._translation.carried(method)

    def received(self, received: Received) -> Received:
        """Give a message in the new words. Raises: whatever the translation raises."""
        method, arguments = self._message(received.method, received.arguments)
        return replace(received, method=method, arguments=arguments)

    def message(self, record: SuspendedMessage) -> SuspendedMessage:
        """Give a message that waits in the new words. Raises: likewise."""
        return record if self.idle else replace(record, received=self.received(record.received))

    def reply(self, record: SuspendedReply) -> SuspendedReply:
        """Give a reply that is owed in the new words. Raises: likewise."""
        return record if self.idle else replace(record, method=self._translation.handler(record.method))

    def schedule(self, record: SuspendedSchedule) -> SuspendedSchedule:
        """Give a schedule in the new words. Raises: likewise."""
        return record if self.idle else replace(record, name=self._translation.schedule(record.name))

    def invocation(self, record: SuspendedInvocation) -> SuspendedInvocation:
        """Give what is kept of an invocation in the new words.

        Raises: likewise.
        """
        begun_in = self._begun_in(record)
        if self.idle:
            return record if begun_in == record.begun_in else replace(record, begun_in=begun_in)
        key = record.received.key
        state = self._state(key, record.state)
        asked, looked = record.asked, record.looked
        return replace(
            record,
            received=self.received(record.received),
            start=self._state(key, record.start),
            journal=[replace(event, state=self._state(key, event.state)) for event in record.journal],
            asked=None if asked is None else [self.asked(each) for each in asked],
            state=state,
            state_hash=record.state_hash if state is None else state_hash(state),
            looked=None if looked is None else [self._looked(key, record.fields, each) for each in looked],
            begun_in=begun_in,
        )

    def _begun_in(self, record: SuspendedInvocation) -> int:
        """Give the version in which it began, as the new code keeps it; what has not begun begins in that."""
        begun_in = (record.begun_in or self._translation.version) if record.lsn else 0
        return 0 if begun_in == self._version else begun_in

    def _state(self, key: bytes, state: bytes | None) -> bytes | None:
        return None if state is None else self._translation.state(key, state)

    def _looked(self, key: bytes, fields: list[str], look: Looked) -> Looked:
        if look.next or look.answer is None or not look.item:
            return look
        return replace(look, answer=self._translation.item(key, fields[look.field], look.item, look.answer))

    def _message(self, method: str, arguments: bytes) -> tuple[str, bytes]:
        return self._translation.handler(method), self._translation.arguments(method, arguments)

    def asked(self, data: bytes) -> bytes:
        """Give a record of what was asked for in the new words. Raises: likewise."""
        if self.idle:
            return data
        asked: AskedOperation = decode_asked(data)
        new: AskedOperation = asked
        match asked:
            case AskedCall() | AskedFork() if asked.service == self._service:
                method, arguments = self._message(asked.method, asked.arguments)
                new = replace(asked, method=method, arguments=arguments)
            case AskedContinue():
                method, arguments = self._message(asked.method, asked.arguments)
                new = replace(asked, method=method, arguments=arguments)
            case AskedRun():
                arguments = self._translation.activity_arguments(asked.activity, asked.arguments)
                new = replace(asked, activity=self._translation.activity(asked.activity), arguments=arguments)
            case _:
                pass
        return data if new == asked else encode_asked(new)
