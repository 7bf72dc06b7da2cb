"""What an author may call when, and what is sent for it."""

from __future__ import annotations

import threading

import pytest

from deathless.ambrosia.binding import Binding
from deathless.protocols.ambrosia_binding.binding import Binding as Machine
from deathless.protocols.ambrosia_binding.encoding import Call, CallType
from deathless.protocols.ambrosia_binding.errors import NotAllowedNow


def connected() -> tuple[Binding, Machine, list[bytes]]:
    sent: list[bytes] = []
    binding, machine = Binding(), Machine("me")
    binding._connect(machine, sent.append, threading.RLock())
    return binding, machine, sent


def test_a_program_that_overrides_nothing_has_no_state_and_does_nothing() -> None:
    binding = Binding()
    assert binding.save() == binding.first() == b""
    binding.load(b"")
    binding.initial(b"")
    binding.upgrade(test=True)
    binding.primary()
    binding.handle(Call(1, CallType.FORKED, b""))
    assert not binding.is_primary


@pytest.mark.parametrize("call", ["fork", "call", "answer"])
def test_what_depends_on_no_logged_message_is_refused(call: str) -> None:
    binding, machine, sent = connected()
    machine._began = True
    calls = {
        "fork": lambda: binding.fork(1, b""),
        "call": lambda: binding.call(1, b"", number=1),
        "answer": lambda: binding.answer(Call(1, CallType.AWAITED, b"", "x", 1)),
    }
    with pytest.raises(NotAllowedNow, match="no logged message"):
        calls[call]()
    binding._handling = True
    calls[call]()
    binding.flush()
    assert len(sent) == 1


def test_an_impulse_is_for_who_leads_and_never_for_a_handler() -> None:
    binding, machine, sent = connected()
    with pytest.raises(NotAllowedNow, match="not primary"):
        binding.impulse(1)
    machine.primary = True
    assert binding.is_primary
    binding.impulse(1, b"x")
    assert sent == [bytes([12, 0, 0, 0, 2, 2]) + b"x"]
    binding._handling = True
    with pytest.raises(NotAllowedNow, match="within a handler"):
        binding.impulse(1)


def test_an_answer_is_a_value_nothing_or_an_error() -> None:
    call = Call(1, CallType.AWAITED, b"", "x", 5)
    for answered, first in (({"payload": b"v"}, 1), ({}, 2), ({"error": b"e"}, 3)):
        binding, machine, sent = connected()
        machine._began = binding._handling = True
        machine._attached.add("x")
        binding.answer(call, **answered)
        binding.flush()
        assert sent[0][4] == first


def test_nothing_is_sent_before_there_is_a_connection() -> None:
    with pytest.raises(NotAllowedNow, match="not connected"):
        Binding().flush()
