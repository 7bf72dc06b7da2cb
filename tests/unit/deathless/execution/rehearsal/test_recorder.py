"""An executor that is looked at does what any other does, and takes down what that was."""

from __future__ import annotations

from tests.unit.deathless.execution.executor_bench import SEED
from tests.unit.deathless.execution.rehearsal.rehearsed import LIMITS, MINUTE, Log, bank
from tests.unit.deathless.execution.rehearsal.test_judge import day, traffic

from deathless.codec.frames import Run
from deathless.codec.messages import Kind, encode
from deathless.engine.shard.assembly import open_shard
from deathless.execution.executor import HandlerExecutor
from deathless.execution.rehearsal.recorder import Recorder
from deathless.execution.rehearsal.steps import Advanced, Called, Moved, Recorded, Sent
from deathless.execution.turn.asked_operation import AskedCall, AskedComplete, AskedFork, decode_asked


def test_digests_states_and_checkpoints_are_those_of_any_executor() -> None:
    for seed in range(4):
        log = traffic(seed)
        twin = open_shard(bank(), LIMITS, SEED)
        again = open_shard(bank(), LIMITS, SEED, make=Recorder)
        for shard in (twin, again):
            shard.restore(log.snapshot())
        assert twin.executor.suspended() == again.executor.suspended() == log.shard.executor.suspended()
        assert twin.executor.state() == again.executor.state() == log.shard.executor.state()
        for at in range(3):
            message = encode(Kind.CALL, method=b"deposit", key=b"alice", args=b"\x81\xa6amount\x01")
            runs = [(Run(log.session, log.seq + 1 + at, 0, 1), [message])]
            assert twin.execute(runs).payload == again.execute(runs).payload


def test_a_frame_of_several_messages_has_the_digests_it_would_have() -> None:
    call = encode(Kind.CALL, method=b"put", key=b"alice", args=b"\x81\xa4name\xa1x")
    fork = encode(Kind.CALL, method=b"bonus", key=b"bob", args=b"\x80")
    payloads = []
    for make in (HandlerExecutor, Recorder):
        shard = open_shard(bank(), LIMITS, SEED, make=make)
        shard.execute([(Run(0, 0, 0, 1), [encode(Kind.REGISTER, args=bytes(16))])])
        runs = [(Run(1, 1, 0, 3), [call, fork, call]), (Run(1, 4, 0, 2), [fork, b"broken"])]
        payloads.append(shard.execute(runs).payload)
    assert payloads[0] == payloads[1]


def test_a_call_is_taken_down_with_what_it_left_asked_for_and_replied() -> None:
    log = day()
    steps = log.recorder.taken()
    _, did = next((step, did) for step, did in steps if isinstance(step, Called) and b"bonus" in step.message)
    [turned] = did.turns
    assert (turned.handler, turned.key, list(turned.states)) == ("bonus", b"alice", [b"alice"])
    forks = [decode_asked(asked) for asked in turned.asked]
    assert [(each.service, each.method) for each in forks if isinstance(each, AskedFork)] == [
        ("log", "note"),
        ("audit", "note"),
    ]
    _, did = next((step, did) for step, did in steps if isinstance(step, Called) and b"transfer" in step.message)
    [turned] = did.turns
    assert (turned.reply, did.waits, did.held) == (b"", True, {b"alice": True})
    assert [type(decode_asked(asked)) for asked in turned.asked] == [AskedCall]
    assert {type(step) for step, _ in steps} == {Called, Sent, Moved, Advanced, Recorded}


def test_a_repeated_call_was_not_run() -> None:
    log = Log(bank())
    for _ in range(2):
        log.call("deposit", "alice", b"key", amount=1.0)
    assert [did.ran for step, did in log.recorder.taken() if isinstance(step, Called)] == [True, False]


def test_a_promise_that_is_completed_and_what_that_wakes_are_turns_of_one_step() -> None:
    log = Log(bank())
    log.call("approve", "bob")
    log.call("ask", "carol")
    log.recorder.taken()
    log.call("complete", "alice", promise="3.1")
    log.call("complete", "alice", promise="4.0")
    (_, first), (_, second) = log.recorder.taken()
    assert [turned.handler for turned in first.turns] == ["complete", "approve"]
    assert isinstance(decode_asked(first.turns[0].asked[0]), AskedComplete)
    assert [(turned.handler, turned.invocation) for turned in second.turns] == [("complete", 6), ("ask", 4)]
    assert second.turns[1].reply[0] == 0


def test_what_leaves_is_gone_and_a_held_key_runs_nothing() -> None:
    log = Log(bank())
    log.call("approve", "bob")
    log.call("deposit", "bob", amount=1.0)
    log.call("watch", "bob")
    recorder = log.recorder
    assert recorder.drop_key(b"bob") == [3, 4]
    recorder.drop(5)
    assert recorder.invocation_count() == 0
    recorder.hold_key(b"bob")
    log.call("deposit", "bob", amount=1.0)
    assert recorder.invocation_count() == 1
    assert recorder.drop_key(b"bob") == [6]
    log.call("deposit", "bob", amount=1.0)
    log.passes(10 * MINUTE)
    assert recorder.invocation_count() == 0
    recorder.taken()
    recorder.put(b"bob", None, {})
    assert (recorder.state_of(b"bob"), recorder.items_of(b"bob"), recorder.taken()) == (None, {}, [])
