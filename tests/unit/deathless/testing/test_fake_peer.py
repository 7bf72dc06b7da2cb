"""Services that are not under test, and drivers."""

from __future__ import annotations

import pytest
from tests.unit.deathless.testing.services import shelf, told

from deathless.base.errors import CallRefused, InvalidUse
from deathless.testing import Environment, FakePeer, Message, Moment


def peers(env: Environment) -> tuple[FakePeer, FakePeer]:
    return env.peer("mail", send=lambda key, text: f"{key}: {text}"), env.peer("ledger")


def test_what_is_sent_is_kept_and_answered() -> None:
    with Environment(shelf) as env:
        mail, ledger = peers(env)
        assert env.service(shelf)["a"].told("hello") == "a: hello"
        assert mail.messages == [Message("shelf", 1, "send", "a", {"text": "hello"}, True)]
        assert ledger.calls("line") == [{"text": "hello"}]
        assert env.history.to("ledger") == ledger.messages
        mail.answer("send", "sent")
        assert env.service(shelf)["a"].told("again") == "sent"


def test_a_refusal_and_a_bug_of_a_peer_reach_the_handler() -> None:
    def refuse(text: str) -> str:
        raise CallRefused("no letters today")

    def fail(text: str) -> str:
        raise ValueError("a bug")

    with Environment(shelf) as env:
        mail, _ = peers(env)
        mail.answer("send", refuse)
        assert env.service(shelf)["a"].told("hello") == "DL3048 DL3048 CallRefused: no letters today"
        mail.answer("send", fail)
        assert env.service(shelf)["a"].told("hello").endswith("ValueError: a bug")


@pytest.mark.parametrize("moment", ["turn", "written", "synced", "send", "sent"])
def test_a_message_comes_once_wherever_the_kill_comes(moment: Moment) -> None:
    with Environment(shelf) as env:
        mail, ledger = peers(env)
        env.kill(shelf, at=moment)
        assert env.service(shelf)["a"].told("hello") == "a: hello"
        assert len(env.killed) == len(mail.messages) == len(ledger.messages) == 1


def test_an_answer_that_is_held_comes_after_a_kill() -> None:
    with Environment(shelf) as env:
        mail, _ = peers(env)
        mail.hold()
        pending = env.service(shelf)["a"].start(told, "hello")
        env.kill(shelf)
        assert not pending.done()
        mail.release()
        assert pending.done()
        assert pending.result() == "a: hello"


def test_an_answer_while_nobody_leads_comes_later() -> None:
    with Environment(shelf) as env:
        mail, _ = peers(env)
        mail.hold()
        pending = env.service(shelf)["a"].start(told, "hello")
        env.stop(shelf)
        mail.release()
        env.start(shelf)
        assert pending.result() == "a: hello"


def test_who_is_not_there_fails_the_test() -> None:
    with Environment(shelf, check=False) as env, pytest.raises(InvalidUse, match="sends to 'ledger'"):
        env.service(shelf)["a"].told("hello")


def test_a_name_is_given_once() -> None:
    with Environment(shelf) as env:
        env.peer("mail")
        for name in ("mail", "shelf"):
            with pytest.raises(InvalidUse, match="already"):
                env.peer(name)
