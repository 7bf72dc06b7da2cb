"""Streams at a primary: who owns one, what is admitted by id, and when it is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.deathless.core.messaging_world import TOOL, Place, Scripted
from tests.unit.deathless.core.primary_world import SMALL, batch

from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.generations import NEWEST, Level
from deathless.codec.messages import Kind, encode
from deathless.codec.peer_messages import (
    DROP_INPUT,
    FORGET_STREAM,
    RETRY_INPUT,
    RUN_INPUT,
    SELF_SESSION,
    SKIP_INPUT,
    Order,
    Outputs,
    Target,
)
from deathless.codec.streams.packets import StreamBatch, StreamCommit, StreamHello, StreamRefused, StreamWelcome
from deathless.codec.streams.records import END_SEQ, OnRefusal, StreamKey, encode_input, encode_mark, seq_of
from deathless.codec.wire import AdminReply, Type, decode_struct, error_reply
from deathless.core import effects as fx
from deathless.core import events as ev
from deathless.core.tables.stream_table import Stream

GATE, OTHER_GATE = ev.Conn(51), ev.Conn(52)
A, B = b"a" * 16, b"b" * 16
KEY = StreamKey("flights", 7)
WORDS = {Type.STREAM_WELCOME: "welcome", Type.STREAM_REFUSED: "refused", Type.STREAM_COMMIT: "commit"}


class Refusing(Scripted):
    """Turns of a stream's inputs are refused where their arguments end with `bad`."""

    def execute_peer(
        self,
        peer: Target,
        first_seq: int,
        first_lsn: int,
        now_us: int,
        messages: Sequence[bytes],
        session: int = SELF_SESSION,
    ) -> list[int]:
        if messages[0].endswith(b"bad"):
            refused = (first_lsn, peer, error_reply("DL3014", "ValueError", "no"))
            self.give = Outputs([], [], [], [], refused=[refused])
            return [1]
        return super().execute_peer(peer, first_seq, first_lsn, now_us, messages, session)


class Stage(Place):
    """A place to which sources send; inputs whose arguments begin with `bad` are refused."""

    def __init__(
        self,
        limits: Limits = SMALL,
        safeguards: Safeguards = ALL_SAFEGUARDS,
        deaths: dict[tuple[int, int], int] | None = None,
    ) -> None:
        super().__init__(limits, safeguards, deaths, Refusing())
        self.looked = len(self.sent)

    def hello(
        self, nonce: bytes = A, conn: ev.Conn = GATE, on_refusal: OnRefusal = OnRefusal.STOP, *, resume: bool = False
    ) -> None:
        self.tell(ev.StreamHelloReceived(conn, StreamHello(*KEY, nonce, resume, on_refusal)))

    def open(self, nonce: bytes = A, conn: ev.Conn = GATE, on_refusal: OnRefusal = OnRefusal.STOP) -> StreamWelcome:
        self.hello(nonce, conn, on_refusal)
        self.settle()
        [*_, welcome] = [decode_struct(StreamWelcome, b) for _, k, b in self.sent if k == Type.STREAM_WELCOME]
        self.looked = len(self.sent)
        return welcome

    def give(self, welcome: StreamWelcome, first: int, *texts: bytes, follows: int = -1, conn: ev.Conn = GATE) -> None:
        """Send inputs with ids from `first` on, behind the id `follows`."""
        messages = [encode_input(b"m", b"k", text) for text in texts]
        self.send_batch(welcome, seq_of(first), messages, follows, conn)

    def end(self, welcome: StreamWelcome, behind: int) -> None:
        self.send_batch(welcome, END_SEQ + seq_of(behind) + 1, [encode_input(b"end", b"k", b"end")], behind, GATE)

    def send_batch(
        self, welcome: StreamWelcome, first_seq: int, messages: list[bytes], follows: int, conn: ev.Conn = GATE
    ) -> None:
        received = batch(welcome.session, first_seq, messages, seq_of(follows))
        self.tell(ev.StreamBatchReceived(conn, StreamBatch(received, welcome.term)))

    @property
    def ran(self) -> list[bytes]:
        """Arguments of the inputs that ran, in order."""
        return [message.rpartition(b"\x90")[2] for message in self.script.ran if message[:1] == b"\x02"]

    @property
    def stream(self) -> Stream:
        stream = self.sessions.streams.find(KEY)
        assert stream is not None
        return stream

    def told(self) -> list[str]:
        """What sources were told since the last look, in short."""
        told: list[str] = []
        for conn, kind, body in self.sent[self.looked :]:
            if kind == Type.STREAM_COMMIT:
                commit = decode_struct(StreamCommit, body)
                told.append(f"{conn} commit {commit.next_seq - 2}{' end' * commit.ended}")
            elif kind == Type.STREAM_WELCOME:
                welcome = decode_struct(StreamWelcome, body)
                told.append(f"{conn} welcome {welcome.last_id}{' end' * welcome.ended}")
            elif kind == Type.STREAM_REFUSED:
                refused = decode_struct(StreamRefused, body)
                told.append(f"{conn} refused {refused.code} {refused.retry_after_ms} {refused.from_seq}")
        self.looked = len(self.sent)
        return told


def welcomed_at(level: int, safeguards: Safeguards) -> int:
    """The level that a source is told at a log of this one."""
    stage = Stage(safeguards=safeguards)
    stage.primary.messaging.inputs._level = lambda: level
    return stage.open().level


def test_a_source_is_told_the_level_of_the_log_and_not_what_this_build_knows() -> None:
    assert welcomed_at(Level.FIRST, ALL_SAFEGUARDS) == Level.FIRST
    assert welcomed_at(Level.FIRST, Safeguards(write_by_level=False)) == NEWEST, "others beside us can't read that"


def test_a_fresh_stream_is_welcomed_below_its_first_id_once_its_record_is_confirmed() -> None:
    stage = Stage()
    stage.hello()
    stage.sync()
    assert stage.told() == []
    stage.prove()
    assert stage.told() == ["51 welcome -1"]


def test_inputs_run_once_in_order_and_are_committed_when_they_are_confirmed() -> None:
    stage = Stage()
    welcome = stage.open()
    stage.give(welcome, 5, b"five", b"six")
    stage.sync()
    assert stage.told() == []
    stage.prove()
    assert stage.told() == ["51 commit 6"]
    stage.give(welcome, 5, b"five", b"six", b"seven")
    stage.settle()
    stage.give(welcome, 6, b"six", follows=5)
    assert stage.told() == ["51 commit 7", "51 commit 7"]
    assert stage.ran == [b"five", b"six", b"seven"]
    assert stage.primary.messaging.inputs.repeated == 3


def test_what_follows_nothing_that_was_admitted_is_dropped() -> None:
    stage = Stage()
    welcome = stage.open()
    stage.give(welcome, 9, b"nine", follows=8)
    stage.settle()
    assert (stage.told(), stage.ran, stage.primary.messaging.inputs.dropped) == ([], [], 1)
    stage.give(welcome, 8, b"eight")
    stage.give(welcome, 12, b"twelve", follows=8)
    stage.settle()
    assert stage.ran == [b"eight", b"twelve"]


def test_a_batch_of_another_term_or_connection_is_dropped() -> None:
    stage = Stage()
    first = stage.open()
    stage.give(first, 0, b"0", conn=OTHER_GATE)
    second = stage.open()  # the same owner, on the same connection, anew
    stage.give(first, 0, b"0")
    stage.settle()
    assert stage.ran == []
    stage.give(second, 0, b"0")
    stage.settle()
    assert stage.ran == [b"0"]


def test_a_newcomer_is_welcomed_when_all_that_was_admitted_is_confirmed() -> None:
    stage = Stage()
    welcome = stage.open()
    stage.give(welcome, 0, b"0")
    assert stage.owes(fx.RunFrame), "it is being written"
    stage.give(welcome, 1, b"1", follows=0)  # it waits for the next one
    stage.hello(B, OTHER_GATE)
    assert stage.told() == ["51 refused DL3080 -1 0"]
    stage.sync()
    stage.prove()
    assert stage.told() == []
    stage.settle()
    assert stage.told() == ["52 welcome 1"]
    assert stage.stream.nonce == B


def test_without_the_wait_a_newcomer_is_told_of_what_may_be_lost() -> None:
    stage = Stage(safeguards=replace(ALL_SAFEGUARDS, welcome_confirmed=False))
    welcome = stage.open()
    stage.give(welcome, 0, b"0")
    stage.hello(A, OTHER_GATE, resume=True)
    assert stage.told() == ["52 welcome 0"]


def test_without_ids_what_comes_again_runs_again() -> None:
    stage = Stage(safeguards=replace(ALL_SAFEGUARDS, admit_by_id=False))
    welcome = stage.open()
    stage.give(welcome, 0, b"0")
    stage.give(welcome, 0, b"0")
    stage.settle()
    assert stage.ran == [b"0", b"0"]


def test_a_fenced_owner_that_comes_back_is_told_so_and_one_that_was_cut_off_goes_on() -> None:
    stage = Stage()
    stage.open(A)
    stage.open(B, OTHER_GATE)
    stage.hello(A, resume=True)
    assert stage.told() == ["51 refused DL3080 -1 0"]
    stage.primary.connection_lost(OTHER_GATE, stage.now, stage.wall_us)
    stage.hello(A, resume=True)
    assert stage.told() == ["51 refused DL3080 -1 0"], "the log says who took it last"
    stage.hello(B, OTHER_GATE, resume=True)
    assert stage.told() == ["52 welcome -1"]


def test_who_waits_is_fenced_by_a_later_newcomer() -> None:
    stage = Stage()
    stage.hello(A)
    stage.hello(B, OTHER_GATE)
    assert stage.told() == ["51 refused DL3080 -1 0"]
    stage.settle()
    assert stage.told() == ["52 welcome -1"]
    assert stage.primary.messaging.inputs.owned().keys() == {KEY}


def test_an_end_counts_once_until_a_message_comes() -> None:
    stage = Stage()
    welcome = stage.open()
    stage.give(welcome, 0, b"0")
    for _ in range(2):
        stage.end(welcome, 0)
    stage.settle()
    stage.end(welcome, 0)
    assert stage.told() == ["51 commit 0", "51 commit 0 end", "51 commit 0 end"]
    assert stage.ran == [b"0", b"end"]
    stage.give(welcome, 1, b"1", follows=0)
    stage.end(welcome, 1)
    stage.end(welcome, 0)  # late
    stage.settle()
    assert stage.ran == [b"0", b"end", b"1", b"end"]
    assert stage.open().ended


def test_an_end_that_is_not_remembered_runs_twice() -> None:
    stage = Stage(safeguards=replace(ALL_SAFEGUARDS, remember_end=False))
    welcome = stage.open()
    stage.end(welcome, -1)
    stage.end(welcome, -1)
    stage.settle()
    assert stage.ran == [b"end", b"end"]


def test_a_mark_takes_an_id_and_a_note_and_runs_nothing() -> None:
    stage = Stage()
    welcome = stage.open()
    stage.send_batch(welcome, seq_of(9), [encode_mark(b"epoch 3")], -1)
    stage.settle()
    assert (stage.told(), stage.ran, stage.stream.note) == (["51 commit 9"], [], b"epoch 3")
    assert stage.open(B).note == b"epoch 3"


def test_a_stream_stands_at_a_refused_input_and_acknowledges_nothing_of_it() -> None:
    stage = Stage()
    welcome = stage.open()
    stage.give(welcome, 0, b"0", b"bad", b"2")
    stage.settle()
    assert stage.told() == ["51 refused DL3081 1000 0"]
    assert (stage.ran, stage.stream.next_seq) == ([b"0"], seq_of(1))
    stage.hello(resume=True)
    assert stage.told() == ["51 refused DL3081 1000 0"]
    stage.tell(ev.OrderReceived(TOOL, 1, Order(SKIP_INPUT, welcome.session, seq_of(2))))  # it stands elsewhere
    stage.tell(ev.OrderReceived(TOOL, 1, Order(RETRY_INPUT, welcome.session)))
    stage.settle()
    again = stage.open()
    assert again.last_id == 0
    stage.give(again, 1, b"bad", b"2", follows=0)
    stage.settle()
    stage.tell(ev.OrderReceived(TOOL, 2, Order(SKIP_INPUT, welcome.session, seq_of(1))))
    stage.settle()
    last = stage.open()
    stage.give(last, 2, b"2", follows=1)
    stage.settle()
    assert stage.ran == [b"0", b"2"]
    assert stage.order_answers() == ["DL3082", "", ""]


def test_dead_letters_are_kept_and_the_stream_goes_on() -> None:
    stage = Stage()
    welcome = stage.open(on_refusal=OnRefusal.DEAD_LETTER)
    stage.give(welcome, 0, b"0", b"bad", b"2")
    stage.settle()
    assert (stage.told(), stage.ran) == (["51 commit 2"], [b"0", b"2"])
    [refused] = stage.sessions.streams.refused()
    assert (refused.seq, refused.code, refused.why) == (seq_of(1), "DL3014", "ValueError: no")
    assert refused.message == encode_input(b"m", b"k", b"bad")


def test_what_was_admitted_behind_a_refused_input_is_sent_again() -> None:
    stage = Stage()
    welcome = stage.open()
    stage.give(welcome, 0, b"bad")
    stage.give(welcome, 4, b"4", follows=0)  # it waits for the next frame
    stage.sync()
    stage.tell(ev.OrderReceived(TOOL, 1, Order(RETRY_INPUT, welcome.session)))  # before that
    stage.settle()
    assert (stage.ran, stage.stream.next_seq) == ([], seq_of(0))
    assert stage.open().last_id == -1


def test_a_full_outbox_refuses_inputs_as_it_does_calls_and_the_term_goes_on() -> None:
    stage = Stage(limits=replace(SMALL, outbox_bytes_max=1))
    welcome = stage.open()
    stage.shard.outbox.append(Target("b", 0), b"full")
    stage.give(welcome, 3, b"3")
    assert stage.told() == ["51 refused DL1007 200 1"]
    stage.shard.outbox.trim(Target("b", 0), 1)
    stage.give(welcome, 3, b"3")
    stage.settle()
    assert stage.told() == ["51 commit 3"]


def test_a_frame_without_room_is_told_and_what_was_admitted_is_sent_again() -> None:
    stage = Stage()
    welcome = stage.open()
    stage.give(welcome, 0, b"0")
    stage.hello(A, OTHER_GATE, resume=True)
    stage.refuse()
    assert stage.told() == ["52 welcome -1"]
    stage.do(stage.primary.space_found(stage.now, stage.wall_us))
    renewed = stage.primary.messaging.inputs.owned()[KEY].term
    stage.give(msgspec.structs.replace(welcome, term=renewed), 0, b"0", conn=OTHER_GATE)
    stage.refuse()
    assert stage.told() == ["52 refused DL1003 500 1"]


def test_what_no_source_sends_ends_its_term() -> None:
    stage = Stage(limits=replace(SMALL, message_bytes_max=100))
    wrong = [
        (1, [encode(Kind.CALL)]),
        (1, [b"short"]),
        (1, [encode_input(b"m", b"k", bytes(200))]),
        (1, [encode(Kind.FORK, idempotency_key=b"\xc1")]),
        (END_SEQ + 1, [encode_mark(), encode_mark()]),
        (END_SEQ - 1, [encode_mark()]),
        (0, [encode_mark()]),
    ]
    for first_seq, messages in wrong:
        welcome = stage.open()
        stage.send_batch(welcome, first_seq, messages, -1)
        [told] = stage.told()
        assert told in ("51 refused DL3003 -1 0", "51 refused DL3006 -1 0"), told
        stage.send_batch(welcome, 1, [encode_mark()], -1)
        assert stage.told() == []


def test_an_input_that_ended_its_process_too_often_is_parked_where_it_stands() -> None:
    deaths: dict[tuple[int, int], int] = {}
    stage = Stage(deaths=deaths)
    welcome = stage.open()
    deaths[welcome.session, seq_of(5)] = SMALL.deaths_before_parking
    stage.give(welcome, 5, b"killer", b"six")
    stage.settle()
    assert (stage.ran, stage.told()) == ([b"six"], ["51 commit 6"])
    [parked] = stage.shard.parked
    assert (parked.session, parked.seq) == (welcome.session, seq_of(5))


def test_a_primary_that_lets_go_sends_sources_away() -> None:
    stage = Stage()
    stage.open()
    stage.do(stage.primary.stop_ordered(stage.now, stage.wall_us))
    stage.hello(resume=True)
    assert stage.told() == ["51 refused DL1001 50 0"]


IDS = (0, 1, 2, 5, 6, 9, 40, 41, 42, 43)  # of all that the source holds
STEPS = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 9), st.integers(1, 5)),
    st.tuples(st.sampled_from(["sync", "prove", "refuse", "space", "again", "take", "lost"]), st.just(0), st.just(0)),
)


def runs_of(first: int, count: int) -> list[list[int]]:
    """Cut so many ids, from index `first` on, where they have gaps."""
    runs: list[list[int]] = []
    for number in IDS[first : first + count]:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


@given(st.lists(STEPS, max_size=60))
def test_whatever_is_sent_and_refused_each_id_runs_once_in_order_and_none_is_passed_by(
    steps: list[tuple[str, int, int]],
) -> None:
    stage, nonces = Stage(), iter(range(1, 100))
    welcome = stage.open()
    for step, first, count in steps:
        if step == "send":
            for numbers in runs_of(first, count):
                before = IDS[IDS.index(numbers[0]) - 1] if numbers[0] != IDS[0] else -1
                stage.give(welcome, numbers[0], *(str(each).encode() for each in numbers), follows=before)
        elif step == "sync" and stage.owes(fx.RunFrame):
            stage.sync()
        elif step == "prove" and stage.owes(fx.Prove):
            stage.prove()
        elif step == "refuse" and stage.owes(fx.RunFrame):
            stage.refuse()
        elif step == "space" and stage.primary.admission.full:
            stage.do(stage.primary.space_found(stage.now, stage.wall_us))
        elif step == "lost":
            stage.do(stage.primary.connection_lost(GATE, stage.now, stage.wall_us))
        elif step in ("again", "take") and not stage.primary.admission.full:
            nonce = stage.stream.nonce if step == "again" else bytes([next(nonces)]) * 16
            welcome = stage.open(nonce)
        assert stage.ran == [str(each).encode() for each in IDS[: len(stage.ran)]]
    assert stage.stream.next_seq == (seq_of(IDS[len(stage.ran) - 1]) + 1 if stage.ran else 1)


def test_an_order_to_run_a_dead_letter_again_is_answered_with_what_became_of_it_once_that_is_confirmed() -> None:
    stage = Stage()
    stage.give(stage.open(on_refusal=OnRefusal.DEAD_LETTER), 0, b"bad")
    stage.settle()
    [refused] = stage.sessions.streams.refused()
    for request, command in enumerate((RUN_INPUT, RUN_INPUT, DROP_INPUT), 1):  # the others come while it is under way
        stage.tell(ev.OrderReceived(TOOL, request, Order(command, refused.lsn)))
    assert stage.order_answers() == ["DL3076", "DL3076"]
    stage.settle()
    told = [
        decode_struct(AdminReply, body) for conn, kind, body in stage.sent if (conn, kind) == (TOOL, Type.ADMIN_REPLY)
    ]
    assert (told[-1].id, told[-1].code) == (1, "")
    assert msgspec.json.decode(told[-1].result) == {"done": False, "code": "DL3014", "why": "ValueError: no"}
    stage.tell(ev.OrderReceived(TOOL, 4, Order(DROP_INPUT, refused.lsn)))
    stage.tell(ev.OrderReceived(TOOL, 5, Order(RUN_INPUT, 4711)))
    stage.settle()
    assert (stage.order_answers()[-2:], stage.sessions.streams.refused()) == (["", "DL3076"], [])


def test_a_stream_that_somebody_has_or_wants_is_not_forgotten_and_one_that_is_gone_begins_anew() -> None:
    stage = Stage()
    welcome = stage.open()
    stage.give(welcome, 0, b"0")
    forget = Order(FORGET_STREAM, welcome.session)
    stage.tell(ev.OrderReceived(TOOL, 1, forget))  # it is owned
    stage.do(stage.primary.connection_lost(GATE, stage.now, stage.wall_us))
    stage.tell(ev.OrderReceived(TOOL, 2, forget))  # what it brought is not confirmed
    stage.settle()
    stage.tell(ev.OrderReceived(TOOL, 3, forget))
    stage.looked = len(stage.sent)
    stage.hello(B)
    assert stage.told() == ["51 refused DL1002 50 0"], "until it is forgotten"
    stage.tell(ev.OrderReceived(TOOL, 4, forget))
    stage.settle()
    assert stage.order_answers() == ["DL3077", "DL3077", "DL3077", ""]
    again = stage.open(B)
    assert (again.last_id, again.session > welcome.session) == (-1, True)
    assert (stage.sessions.streams.get(welcome.session), stage.ran) == (None, [b"0"])


def test_without_the_safeguard_a_stream_is_forgotten_under_its_owner() -> None:
    stage = Stage(safeguards=replace(ALL_SAFEGUARDS, forget_unused=False))
    welcome = stage.open()
    stage.tell(ev.OrderReceived(TOOL, 1, Order(FORGET_STREAM, welcome.session)))
    stage.settle()
    assert stage.order_answers() == [""]
    stage.looked = len(stage.sent)
    stage.give(welcome, 0, b"0")
    stage.settle()
    assert (stage.ran, stage.told()) == ([], []), "what it sends is dropped, and it is not told"
