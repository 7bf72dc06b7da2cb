"""The deterministic part: the same runs give the same state, replies and digests, and a difference is named (I6)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.deathless.core.primary_world import Echo, call
from tests.unit.deathless.execution.saga_versions import make

from deathless.base.errors import CorruptFrame, Diverged, Internal, Parked, SessionExpired
from deathless.base.ids import ChainHash, Epoch, Incarnation, Lsn, SessionId
from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.base.times import Times
from deathless.codec import checkpoint
from deathless.codec.checkpoint_ahead import changes_between
from deathless.codec.frames import Frame, FrameKind, Run, chain_after, decode_data
from deathless.codec.messages import (
    Kind,
    encode,
    encode_parked,
    encode_rebased,
    encode_register,
    encode_time,
)
from deathless.codec.peer_messages import Order, encode_record
from deathless.codec.snapshot import Begun, Since, Snapshot
from deathless.engine.shard import shard as shard_module
from deathless.engine.shard.assembly import open_shard, shard_around
from deathless.engine.shard.shard import Shard, cut_runs
from deathless.execution.author.service import Service
from deathless.execution.executor import HandlerExecutor
from deathless.execution.ready import Ready
from deathless.execution.turn.context import Context

Runs = list[tuple[Run, Sequence[bytes]]]
LIMITS = Limits(session_idle_max_s=10)
SYSTEM = Run(0, 0, 0, 1)
REGISTER: Runs = [(SYSTEM, (encode_register(bytes(16)),))]  # gives session 1


class Liar(Echo):
    """Computes something else for messages that hold `about`, in reply digest or in state."""

    def __init__(self, about: bytes, *, in_digest: bool = True) -> None:
        super().__init__()
        self.about, self.in_digest = about, in_digest

    def execute(
        self, session: int, first_seq: int, first_lsn: int, now_us: int, messages: Sequence[bytes]
    ) -> tuple[list[bytes], list[int]]:
        replies, digests = super().execute(session, first_seq, first_lsn, now_us, messages)
        if self.in_digest:
            digests = [d + (self.about in m) for d, m in zip(digests, messages, strict=True)]
        return replies, digests

    def rolling_update(self) -> bytes:
        return super().rolling_update() + (b"" if self.in_digest else b"!")


def shard(executor: Echo | None = None, safeguards: Safeguards = ALL_SAFEGUARDS) -> Shard:
    return shard_around(executor or Echo(), LIMITS, safeguards)


def execute(primary: Shard, runs: Runs) -> Frame:
    """Run as the primary; gives the frame."""
    first, prev = primary.place.lsn + 1, ChainHash(primary.place.chain)
    done = primary.execute(runs)
    chain = chain_after(prev, first, done.payload)
    primary.place.chain = chain
    numbers = (FrameKind.DATA, Epoch(1), Lsn(first), Lsn(0), done.count, Incarnation(1))
    return Frame(*numbers, prev, chain, 0, done.payload)


def _noting(function: Callable[..., None], called: list[object]) -> Callable[..., None]:
    def noted(*arguments: object, **named: object) -> None:
        called.append(arguments)
        function(*arguments, **named)

    return noted


def taken(of: Shard) -> object:
    """Everything a shard holds."""
    return of.snapshot(service="s", service_id=bytes(16), incarnation=1, epoch=1, fingerprint=b"f")


def say(method: bytes, args: bytes = b"", key: bytes = b"alice") -> bytes:
    return encode(Kind.CALL, method=method, key=key, args=args)


# ---- primary and followers -----------------------------------------------------------------------------------------


def test_i6_follower_that_applies_the_frames_holds_what_the_primary_holds() -> None:
    primary, follower = shard(), shard()
    follower.apply(execute(primary, REGISTER))
    runs: Runs = [(Run(1, 1, 0, 2), [call(b"a"), call(b"b")]), (Run(1, 3, 1, 1), [call(b"c")])]
    results = follower.apply(execute(primary, runs))
    assert taken(primary) == taken(follower)
    assert [result.replies for result in results] == [[b"\x00a", b"\x00b"], [b"\x00c"]]
    assert primary.place.lsn == 4


def test_i6_first_message_that_differs_is_named_by_lsn_and_handler() -> None:
    primary, follower = shard(), shard(Liar(b"deposit"))
    follower.apply(execute(primary, REGISTER))
    frame = execute(primary, [(Run(1, 1, 0, 3), [say(b"look"), say(b"deposit"), say(b"deposit", key=b"bob")])])
    with pytest.raises(Diverged, match=r"lsn 3: handler 'deposit' for key 'alice'"):
        follower.apply(frame)


def test_i6_what_differs_although_no_message_does_by_itself_is_found_too() -> None:
    primary, follower = shard(), shard(Liar(b"", in_digest=False))
    follower.apply(execute(primary, REGISTER))
    with pytest.raises(
        Diverged, match=r"lsn 2: handler 'a' .*; lsn 3: handler 'b' .*: their states and replies are the"
    ):
        follower.apply(execute(primary, [(Run(1, 1, 0, 2), [say(b"a"), say(b"b")])]))


def test_i6_of_many_messages_that_may_differ_some_are_named() -> None:
    primary, follower = shard(), shard(Liar(b"", in_digest=False))
    follower.apply(execute(primary, REGISTER))
    with pytest.raises(Diverged, match=r"lsn 9: [^;]* and 2 more: their states"):
        follower.apply(execute(primary, [(Run(1, 1, 0, 10), [say(b"a")] * 10)]))


def test_i6_record_of_ours_and_malformed_message_are_named_as_what_they_are() -> None:
    primary, follower = shard(), shard(Liar(b"\xff"))
    follower.place.digest = b"x" * 16
    with pytest.raises(Diverged, match=r"lsn 1: handler 'record of kind 17'"):
        follower.apply(execute(primary, REGISTER))
    primary, follower = shard(), shard(Liar(b"\xff"))
    follower.apply(execute(primary, REGISTER))
    with pytest.raises(Diverged, match="lsn 2: a malformed message"):
        follower.apply(execute(primary, [(Run(1, 1, 0, 1), [b"\x01\x00\xff\xff\x00\x00\x00\x00"])]))


def test_without_compare_digests_a_replica_that_computes_something_else_goes_on_and_may_be_next() -> None:
    primary, follower = shard(), shard(Liar(b"deposit"), Safeguards(compare_digests=False))
    follower.apply(execute(primary, REGISTER))
    follower.apply(execute(primary, [(Run(1, 1, 0, 1), [say(b"deposit")])]))
    assert follower.place.lsn == primary.place.lsn


@pytest.mark.parametrize("wrong", ["lsn", "chain"])
def test_frame_that_does_not_follow_on_the_chain_is_not_applied(wrong: str) -> None:
    primary, follower = shard(), shard()
    frame = execute(primary, REGISTER)
    if wrong == "lsn":
        follower.place.lsn = 5
    else:
        follower.place.chain = b"x" * 16
    with pytest.raises(CorruptFrame, match="does not follow"):
        follower.apply(frame)


def test_executor_that_gives_too_few_replies_is_our_bug() -> None:
    class Lazy(Echo):
        def execute(
            self, session: int, first_seq: int, first_lsn: int, now_us: int, messages: Sequence[bytes]
        ) -> tuple[list[bytes], list[int]]:
            return [], []

    primary = shard(Lazy())
    execute(primary, REGISTER)
    with pytest.raises(Internal, match="0 replies to 1"):
        primary.execute([(Run(1, 1, 0, 1), [call()])])


# ---- sessions and replies ------------------------------------------------------------------------------------------


def test_i5_reply_is_recorded_and_kept_until_it_is_acknowledged() -> None:
    primary = shard()
    execute(primary, REGISTER)
    execute(primary, [(Run(1, 1, 0, 1), [call(b"a")])])
    assert primary.sessions.replies_from(1, 1, 1) == ([1], [b"\x00a"])
    execute(primary, [(Run(1, 2, 1, 0), ()), (SYSTEM, (encode_time(Times.at(5)),))])
    assert primary.sessions.replies_from(1, 1, 1) == ([], [])


def test_without_record_replies_a_retry_finds_none() -> None:
    primary = shard(safeguards=Safeguards(record_replies=False))
    execute(primary, REGISTER)
    execute(primary, [(Run(1, 1, 0, 1), [call(b"a")])])
    assert primary.sessions.replies_from(1, 1, 1) == ([], [])


def test_i5_message_of_a_session_that_is_gone_gets_a_typed_reply_and_no_turn() -> None:
    primary, follower = shard(), shard()
    frame = execute(primary, [(Run(9, 1, 0, 2), [call(b"a"), call(b"b")])])
    assert primary.place.lsn == 2
    (result,) = follower.apply(frame)
    assert all(SessionExpired.code.encode() in reply for reply in result.replies)
    assert taken(primary) == taken(follower)


# ---- our own records -----------------------------------------------------------------------------------------------


def test_time_governs_what_follows_it_and_never_goes_back() -> None:
    primary = shard()
    execute(primary, [(SYSTEM, (encode_time(Times.at(50)),)), (SYSTEM, (encode_time(Times.at(40)),))])
    assert primary.place.time_us == 50


def test_time_ends_sessions_that_were_idle_for_too_long() -> None:
    primary = shard()
    execute(primary, REGISTER)
    execute(primary, [(SYSTEM, (encode_time(Times.at(11_000_000)),))])
    assert len(primary.sessions) == 0


def test_registrations_are_told_with_their_lsn() -> None:
    assert shard().execute(REGISTER).registered == [(bytes(16), 1)]


def test_i11_parked_message_is_listed_unrun_and_answered_with_a_typed_error() -> None:
    primary, follower = shard(), shard()
    follower.apply(execute(primary, REGISTER))
    follower.apply(execute(primary, [(SYSTEM, (encode_parked(1, 1, say(b"killer")),))]))
    (parked,) = primary.parked
    assert (parked.lsn, parked.session, parked.seq, parked.message) == (2, 1, 1, say(b"killer"))
    ((_, reply),) = [primary.sessions.replies_from(1, 1, 1)]
    assert Parked.code.encode() in reply[0]
    assert isinstance(primary.executor, Echo)
    assert primary.executor.ran == []
    assert taken(primary) == taken(follower)


def test_i11_parked_message_of_a_session_that_is_gone_is_listed_and_answered() -> None:
    (result,) = shard().execute([(SYSTEM, (encode_parked(9, 4, call()),))]).results
    assert result.run == Run(9, 4, 0, 1)
    assert SessionExpired.code.encode() in result.replies[0]


def test_i10_list_of_parked_messages_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_module, "PARKED_MAX", 2)
    primary = shard()
    execute(primary, [(SYSTEM, (encode_parked(9, seq, call()),)) for seq in range(4)])
    assert [record.seq for record in primary.parked] == [2, 3]


def test_rebased_record_changes_nothing_but_the_digest() -> None:
    primary, other = shard(), shard()
    for each in (primary, other):
        execute(each, REGISTER)
    execute(primary, [(SYSTEM, (encode_rebased(1),))])
    assert (primary.place.lsn, primary.sessions.snapshot()) == (2, other.sessions.snapshot())
    assert primary.place.digest != other.place.digest


def test_record_that_version_1_does_not_know_stops_the_replica() -> None:
    with pytest.raises(CorruptFrame, match="kind 99"):
        shard().execute([(SYSTEM, (encode(99),))])


def test_what_a_service_without_messaging_logs_and_copies_is_byte_for_byte_what_it_always_was() -> None:
    primary = shard()
    taken_in = hashlib.blake2b(digest_size=16)
    again: Runs = [(SYSTEM, (encode_parked(1, 4, call(b"k")),)), (SYSTEM, (encode_rebased(1),))]
    for runs in (
        REGISTER,
        [
            (Run(1, 1, 0, 2), [call(b"a"), call(b"b")]),
            (SYSTEM, (encode_time(Times.at(5)),)),
            (Run(1, 3, 1, 1), [call(b"c")]),
        ],
        [*again, (Run(9, 1, 0, 1), [call(b"gone")])],
    ):
        taken_in.update(primary.execute(runs).payload)
    copy = primary.snapshot(service="s", service_id=bytes(16), incarnation=1, epoch=1, fingerprint=b"f")
    for chunk in checkpoint.encode(copy):
        taken_in.update(chunk)
    assert taken_in.hexdigest() == "d77a8f934ef9043f73b28617b3cb2342"


# ---- checkpoints ---------------------------------------------------------------------------------------------------


def test_restored_shard_is_the_one_that_was_copied_and_goes_on_alike() -> None:
    primary, follower = shard(), shard()
    execute(primary, REGISTER)
    execute(primary, [(Run(1, 1, 0, 1), [call(b"a")]), (SYSTEM, (encode_parked(1, 2, call()),))])
    follower.restore(primary.snapshot(service="s", service_id=bytes(16), incarnation=1, epoch=1, fingerprint=b"f"))
    assert taken(primary) == taken(follower)
    follower.apply(execute(primary, [(Run(1, 3, 0, 1), [call(b"c")])]))
    assert taken(primary) == taken(follower)


def test_i6_what_does_not_fit_other_code_is_held_by_every_shard_that_runs_it() -> None:
    def other_code() -> Shard:
        return open_shard(make(without=("saga",)), LIMITS, bytes(32))

    def copy(of: Shard) -> Snapshot:
        return of.snapshot(service="shop", service_id=bytes(16), incarnation=1, epoch=1, fingerprint=b"f")

    def send(method: bytes, **arguments: object) -> bytes:
        return encode(Kind.CALL, method=method, key=b"a", args=msgspec.msgpack.encode(arguments))

    first = open_shard(make(), LIMITS, bytes(32))
    execute(first, REGISTER)
    execute(first, [(Run(1, 1, 0, 1), [send(b"saga", parcel={"name": "box"})])])
    primary, follower, restarted = other_code(), other_code(), other_code()
    for one in (primary, follower):
        one.restore(copy(first), same_code=False)
        assert one.executor.held_count() == 1
    follower.apply(execute(primary, [(Run(1, 2, 0, 1), [send(b"quick", text="x")])]))
    restarted.restore(copy(primary))
    assert restarted.executor.held_count() == 1
    frame = execute(primary, [(SYSTEM, (encode_record(Order("cancel", first.place.lsn)),))])
    for one in (follower, restarted):
        one.apply(frame)
        assert (copy(one).invocations, copy(one).state) == (copy(primary).invocations, copy(primary).state)
    assert primary.executor.held_count() == 0


@pytest.mark.parametrize("how", ["ready", "not ready", "since nothing"])
def test_what_was_made_ready_is_gone_on_with_and_nothing_is_restored_whole(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    class Purse(msgspec.Struct):
        total: int = 0

    service = Service("shop", state=Purse)

    @service.handler
    async def wait(purse: Purse, ctx: Context, amount: int) -> None:
        purse.total += amount
        await ctx.promise(bool)

    def copy(of: Shard) -> Snapshot:
        return of.snapshot(service="shop", service_id=bytes(16), incarnation=1, epoch=1, fingerprint=b"f")

    first, other = (open_shard(service, LIMITS, bytes(32)) for _ in range(2))
    execute(first, REGISTER)
    waits = [say(b"wait", msgspec.msgpack.encode({"amount": 5}), key) for key in (b"a", b"b", b"c")]
    execute(first, [(Run(1, 1, 0, 2), waits[:2])])
    before = copy(first)
    ready = Ready(b"before", dict(before.state), before.invocations)
    assert list(other.make_ready(ready)) == [None]
    assert (other.executor.state(), other.executor.suspended()) == ({}, [])
    execute(first, [(Run(1, 3, 0, 1), waits[2:])])
    now = copy(first)
    if how != "since nothing":
        now.since = Since(Begun(1, 2, 2, b"before"), *changes_between(before.state, now.state))
    ran: list[object] = []
    monkeypatch.setattr(HandlerExecutor, "restore", _noting(HandlerExecutor.restore, ran))
    other.restore(now, same_code=False, ready=None if how == "not ready" else ready)
    assert taken(other) == taken(first)
    assert len(ran) == (0 if how == "ready" else 1)


def test_runs_of_a_frame_are_cut_as_they_were_put_in() -> None:
    primary = shard()
    execute(primary, REGISTER)
    runs: Runs = [(Run(1, 1, 0, 0), []), (Run(1, 1, 0, 2), [call(b"a"), call()]), (SYSTEM, [encode_time(Times.at(1))])]
    assert cut_runs(decode_data(execute(primary, runs))) == runs


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("call"), st.integers(0, 2), st.integers(1, 3)),
            st.tuples(st.just("time"), st.integers(0, 12_000_000), st.just(0)),
            st.tuples(st.just("register"), st.integers(0, 2), st.just(0)),
            st.tuples(st.just("park"), st.integers(0, 2), st.just(0)),
        ),
        max_size=25,
    )
)
def test_i6_any_frames_give_every_replica_the_same(steps: list[tuple[str, int, int]]) -> None:
    primary, follower = shard(), shard()
    ids: dict[int, int] = {}
    for what, number, count in steps:
        session = ids.get(number, 1 << 40)
        record = primary.sessions.get(SessionId(session))
        seq = record.next_seq if record is not None else 1
        if what == "call":
            runs: Runs = [(Run(session, seq, max(seq - 2, 0), count), [call(b"x" * i) for i in range(count)])]
        elif what == "time":
            runs = [(SYSTEM, (encode_time(Times.at(primary.place.time_us + number)),))]
        elif what == "register":
            runs = [(SYSTEM, (encode_register(bytes([number] * 16)),))]
        else:
            runs = [(SYSTEM, (encode_parked(session, seq, call()),))]
        before = primary.place.lsn
        follower.apply(execute(primary, runs))
        if what == "register":
            ids.setdefault(number, before + 1)
            if primary.sessions.get(SessionId(ids[number])) is None:
                ids[number] = before + 1
        assert taken(primary) == taken(follower)


def test_who_tells_of_bugs_knows_whether_a_frame_runs_for_the_first_time() -> None:
    class Asking(Echo):
        def __init__(self) -> None:
            super().__init__()
            self.asked: list[bool] = []

        def execute(
            self, session: int, first_seq: int, first_lsn: int, now_us: int, messages: Sequence[bytes]
        ) -> tuple[list[bytes], list[int]]:
            self.asked.append(of.first)
            return super().execute(session, first_seq, first_lsn, now_us, messages)

    leading, following = Asking(), Asking()
    of = shard(leading)
    frames = [execute(of, REGISTER), execute(of, [(Run(1, 1, 0, 1), [call(b"a")])])]
    assert (leading.asked, of.first) == ([True], False)
    of = shard(following)
    for frame in frames:
        of.apply(frame)
    assert (following.asked, of.first) == ([False], False)
