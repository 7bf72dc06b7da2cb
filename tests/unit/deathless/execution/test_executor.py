"""Turns: whole or not at all, the same bytes everywhere, and nothing between them but the state's bytes."""

import enum
import sys
import zlib
from asyncio import CancelledError
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.unit.deathless.execution.executor_bench import SEED, Bench, Keys, error, value

from deathless.base.limits import NESTING_MAX, Limits
from deathless.codec.messages import HEADER, Kind, encode
from deathless.codec.wire import ok_reply
from deathless.engine.ports import Executor
from deathless.execution.author.service import Service
from deathless.execution.executor import HandlerExecutor
from deathless.execution.turn.context import Context
from deathless.execution.turn.generator import Random
from deathless.execution.turn.running import PAGE_BYTES, Cells, Running
from deathless.execution.values.failure import RECURSION, ProcessEnds

A = "a"
kept: list[object] = []


class Account(msgspec.Struct):
    balance: int = 0
    note: str = ""
    rate: float = 0
    log: list[str] = []
    copy: list[str] = []
    tags: set[str] = set()


bank = Service("bank", state=Account)


@bank.handler
def deposit(account: Account, ctx: Context, amount: int, note: str = "") -> int:
    account.balance += amount
    account.note = note
    return account.balance


@bank.handler
def explode(account: Account, ctx: Context, kind: str = "ValueError") -> None:
    account.balance = 999
    kinds = (ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, CancelledError, MemoryError, ProcessEnds)
    raise {each.__name__: each for each in kinds}[kind]("boom")


@bank.handler
def sink(account: Account, ctx: Context) -> int:
    return 1 + sink(account, ctx)


@bank.handler
def spoil(account: Account, ctx: Context) -> None:
    account.balance = "many"  # type: ignore[assignment]  # what a checker would find, but not everybody runs one


@bank.handler
def lie(account: Account, ctx: Context, answer: Any) -> int:
    account.balance = 7
    return answer  # type: ignore[no-any-return]  # a bug of an author


class Grade(enum.IntEnum):
    GOOD = 2


@bank.handler
def grade(account: Account, ctx: Context) -> int:
    return Grade.GOOD


@bank.handler
def tell(account: Account, ctx: Context) -> tuple[str, int, int, str, float]:
    return ctx.key, ctx.lsn, ctx.now_us, ctx.uuid(), ctx.random.random()


@bank.handler
def grow(account: Account, ctx: Context, size: int) -> None:
    account.note = "x" * size


@bank.handler
def echo(account: Account, ctx: Context, size: int) -> str:
    account.balance += 1
    return "x" * size


@bank.handler
def keep(account: Account, ctx: Context, what: str) -> None:
    kept.append({"context": ctx, "random": ctx.random, "method": ctx.uuid, "closure": lambda: ctx.now}[what])


@bank.handler
def nothing(account: Account, ctx: Context) -> None: ...


@bank.handler
def share(account: Account, ctx: Context) -> bool:
    account.rate = 3
    account.log = account.copy = ["one"]
    return account.log is account.copy


@bank.handler
def look(account: Account, ctx: Context) -> tuple[bool, str]:
    account.log.append("two")
    return account.log is account.copy, type(account.rate).__name__


@bank.handler
def tag(account: Account, ctx: Context, words: list[str]) -> set[str]:
    account.tags |= set(words)
    return account.tags


@bank.handler
def by_keyword(account: Account, ctx: Context, first: int, *, second: int, third: int = 3) -> list[int]:
    return [first, second, third]


@bank.query
def balance(account: Account) -> int:
    return account.balance


def state_of(bench: Bench, key: str = A) -> Account | None:
    encoded = bench.executor.state().get(key.encode())
    return None if encoded is None else msgspec.msgpack.decode(encoded, type=Account)


def test_turn_changes_state_and_gives_the_result() -> None:
    bench = Bench(bank)
    assert bench.call("deposit", amount=5) == 5
    assert bench.call("deposit", amount=3, note="gift") == 8
    assert state_of(bench) == Account(balance=8, note="gift")
    assert bench.call("deposit", "b", amount=1) == 1


def test_digest_is_the_crc_of_new_state_and_reply() -> None:
    bench = Bench(bank)
    replies, digests = bench.executor.execute(1, 1, 1, 7, [bench.message("deposit", amount=5)])
    assert digests == [zlib.crc32(bench.executor.state()[b"a"] + replies[0])]
    replies, digests = bench.executor.execute(1, 2, 2, 7, [bench.message("explode")])
    assert digests == [zlib.crc32(replies[0])]


def test_digest_tells_states_apart_that_give_the_same_reply() -> None:
    one, other = Bench(bank), Bench(bank)
    same = one.executor.execute(1, 1, 1, 7, [one.message("deposit", amount=5, note="x")])
    differs = other.executor.execute(1, 1, 1, 7, [other.message("deposit", amount=5, note="y")])
    assert same[0] == differs[0]
    assert same[1] != differs[1]


def test_exception_rolls_its_turn_back_and_is_the_reply() -> None:
    bench = Bench(bank)
    bench.call("deposit", amount=5)
    before = dict(bench.executor.state())
    failure = bench.fail("explode")
    assert (failure.code, failure.type, failure.text) == ("DL3014", "ValueError", "boom")
    assert bench.executor.state() == before
    assert bench.call("deposit", amount=1) == 6


def test_failed_first_turn_leaves_no_key() -> None:
    bench = Bench(bank)
    bench.fail("explode")
    assert bench.executor.state() == {}


@pytest.mark.parametrize(
    ("method", "arguments", "raised"),
    [
        ("explode", {"kind": "MemoryError"}, MemoryError),
        ("explode", {"kind": "ProcessEnds"}, ProcessEnds),
    ],
)
def test_what_must_end_the_process_is_no_reply_and_its_message_stays_named(
    method: str, arguments: dict[str, object], raised: type[BaseException]
) -> None:
    bench = Bench(bank)
    limit = sys.getrecursionlimit()
    with pytest.raises(raised):
        bench.executor.execute(9, 40, 1, 7, [bench.message("deposit", amount=1), bench.message(method, A, **arguments)])
    assert bench.running == Running(9, 41)
    assert sys.getrecursionlimit() == limit


@pytest.mark.parametrize("kind", ["SystemExit", "KeyboardInterrupt", "GeneratorExit", "CancelledError"])
def test_what_would_end_a_process_ends_its_turn_alone(kind: str) -> None:
    bench = Bench(bank)
    bench.call("deposit", amount=1)
    before = dict(bench.executor.state())
    failure = bench.fail("explode", kind=kind)
    assert (failure.code, failure.type, failure.text) == ("DL3014", kind, "boom")
    assert bench.executor.state() == before
    assert bench.running is None


def test_recursion_ends_its_turn_alone_and_is_told_in_words_of_ours() -> None:
    bench = Bench(bank)
    failure = bench.fail("sink")
    assert (failure.code, failure.type, failure.text) == ("DL3014", "RecursionError", RECURSION)
    bench.call("deposit", amount=1)


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


class Tree(msgspec.Struct):
    root: Any = None
    count: int = 0


trees = Service("trees", state=Tree)


@trees.handler
def give(tree: Tree, ctx: Context, levels: int) -> Any:
    return nested(levels)


@trees.handler
def hold(tree: Tree, ctx: Context, levels: int) -> int:
    tree.root = nested(levels)
    tree.count += 1
    return tree.count


@trees.handler
def take(tree: Tree, ctx: Context, value: Any) -> int:
    return 1


@trees.handler
def holds_itself(tree: Tree, ctx: Context, where: str) -> Any:
    ring: list[Any] = []
    ring.append(ring)
    if where == "state":
        tree.root = ring
        return 1
    return ring


@trees.handler
def lies(tree: Tree, ctx: Context, levels: int) -> int:
    tree.count = nested(levels)  # type: ignore[assignment]  # what a checker would find
    return nested(levels)  # type: ignore[return-value]  # likewise


@pytest.mark.parametrize("method", ["give", "hold"])
def test_what_is_nested_too_deep_fails_its_own_turn(method: str) -> None:
    bench = Bench(trees)
    bench.call(method, levels=NESTING_MAX - 1)  # a state is one level itself
    for levels in (NESTING_MAX + 1, 900, 2_000, 20_000):
        assert bench.fail(method, levels=levels).code == "DL3014"
    bench.call("hold", levels=3)


def test_arguments_that_are_nested_too_deep_are_refused_before_they_are_decoded() -> None:
    bench = Bench(trees)
    bench.call("take", value=nested(NESTING_MAX - 1))
    assert bench.fail("take", value=nested(NESTING_MAX)).code == "DL3003"
    for levels in (990, 20_000):
        deep = b"\x81\xa5value" + b"\x91" * levels + b"\x01"
        replies, _ = bench.executor.execute(1, 1, 1, 7, [encode(Kind.CALL, method=b"take", key=b"a", args=deep)])
        assert msgspec.msgpack.decode(replies[0][1:])[0] == "DL3003"


@pytest.mark.parametrize("where", ["state", "result"])
def test_value_that_holds_itself_fails_its_own_turn(where: str) -> None:
    bench = Bench(trees)
    assert bench.fail("holds_itself", where=where).type == "RecursionError"
    bench.call("hold", levels=1)


@pytest.mark.parametrize("levels", [300, 5_000])
def test_deep_value_where_its_type_forbids_it_fails_its_own_turn(levels: int) -> None:
    assert Bench(trees).fail("lies", levels=levels).code == "DL3014"


def test_page_names_each_message_while_it_runs_and_nobody_after() -> None:
    service = Service("spy", state=Account)
    seen = []

    @service.handler
    def spy(account: Account, ctx: Context) -> None:
        seen.append(bench.running)

    bench = Bench(service)
    bench.executor.execute(4, 10, 1, 7, [bench.message("spy")] * 3)
    assert seen == [Running(4, 10), Running(4, 11), Running(4, 12)]
    assert bench.running is None


def test_depth_of_the_stack_is_the_same_wherever_the_executor_is_called_from() -> None:
    service = Service("deep", state=Account)

    @service.handler
    def room(account: Account, ctx: Context) -> int:
        def down() -> int:
            try:
                return 1 + down()
            except RecursionError:
                return 0

        return down()

    def at(frames: int) -> object:
        return at(frames - 1) if frames else Bench(service).call("room")

    assert at(0) == at(30) == at(300)


def test_runs_of_an_opened_frame_have_the_same_depth_as_one_alone_and_are_made_ready_once() -> None:
    service = Service("deep", state=Account)
    hidden: list[str] = []

    @service.handler
    def room(account: Account, ctx: Context) -> int:
        def down() -> int:
            try:
                return 1 + down()
            except RecursionError:
                return 0

        return down()

    def hide() -> Callable[[], object]:
        hidden.append("hidden")
        return lambda: hidden.append("shown")

    bench = Bench(service, hide=hide)
    executor, message, limit = bench.executor, bench.message("room"), sys.getrecursionlimit()
    alone = executor.execute(3, 1, 1, 7, [message])
    executor.open()
    together = [executor.execute(3, 2, 2, 7, [message]), executor.execute(4, 1, 3, 7, [message])]
    executor.close()
    assert together == [alone, alone]
    assert hidden == ["hidden", "shown"] * 2
    assert sys.getrecursionlimit() == limit


def test_arguments_that_do_not_fit_are_refused_with_their_path() -> None:
    bench = Bench(bank)
    for arguments, text in (
        ({"amount": "5"}, "Expected `int`, got `str` - at `$.amount`"),
        ({}, "Object missing required field `amount`"),
        ({"amount": 5, "amuont": 6}, "Object contains unknown field `amuont`"),
    ):
        failure = bench.fail("deposit", A, **arguments)
        assert (failure.code, failure.text) == ("DL3003", text)
    assert bench.executor.state() == {}


@pytest.mark.parametrize("encoded", [b"", b"\xc1", b"\x81\xa6amount\x05\x00", b"\x81\xa4note\xa1\xff"])
def test_arguments_that_are_no_msgpack_are_refused(encoded: bytes) -> None:
    bench = Bench(bank)
    assert error(bench.run([encode(Kind.CALL, method=b"deposit", key=b"a", args=encoded)])[0]).code == "DL3003"


def test_unknown_handler_is_refused_and_a_query_named_as_one() -> None:
    bench = Bench(bank)
    assert bench.fail("nope").code == "DL3004"
    assert "'nope'" in bench.fail("nope").text
    assert "'balance' is a query" in bench.fail("balance").text
    failure = error(bench.run([encode(Kind.CALL, method=b"\xff" * 300, key=b"a")])[0])
    assert len(failure.text) < 200


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        HEADER.pack(Kind.CALL, 0, 7, 1, 0) + b"depo",
        HEADER.pack(Kind.CALL, 0, 0, 0, 9) + b"idem",
        HEADER.pack(Kind.CALL, 1, 7, 1, 0) + b"deposita\x81\xa6amount\x05",
        HEADER.pack(Kind.TIME, 0, 7, 1, 0) + b"deposita\x81\xa6amount\x05",
    ],
)
def test_malformed_message_is_refused_and_not_remembered(message: bytes) -> None:
    bench = Bench(bank)
    failure = error(bench.run([message])[0])
    assert (failure.code, failure.text) == ("DL3003", "the message is malformed")
    assert bench.keys.remembered == 0


@pytest.mark.parametrize(("key", "code"), [(b"", "DL3003"), (b"\xff", "DL3003"), (b"k" * 513, "DL3006")])
def test_key_that_can_name_nothing_is_refused(key: bytes, code: str) -> None:
    bench = Bench(bank)
    message = encode(Kind.CALL, method=b"nothing", key=key, args=b"\x80")
    assert error(bench.run([message])[0]).code == code
    assert bench.executor.state() == {}


def test_state_that_does_not_fit_its_type_fails_its_own_turn() -> None:
    bench = Bench(bank)
    bench.call("deposit", amount=5)
    failure = bench.fail("spoil")
    assert (failure.code, failure.type) == ("DL3014", "ValidationError")
    assert "$.balance" in failure.text
    assert bench.call("deposit", amount=1) == 6


@pytest.mark.parametrize("answer", ["seven", None, 2.5, [1]])
def test_result_that_does_not_fit_its_type_fails_its_turn(answer: object) -> None:
    bench = Bench(bank)
    assert bench.fail("lie", answer=answer).type == "ValidationError"
    assert bench.executor.state() == {}


def test_result_of_a_subclass_of_its_type_is_taken() -> None:
    assert Bench(bank).call("grade") == 2


def test_arguments_by_keyword_reach_their_handler() -> None:
    assert Bench(bank).call("by_keyword", first=1, second=2) == [1, 2, 3]


def test_nothing_is_remembered_between_turns_but_the_bytes() -> None:
    bench = Bench(bank)
    assert bench.call("share") is True
    assert bench.call("look") == [False, "float"]
    assert state_of(bench) == Account(rate=3.0, log=["one", "two"], copy=["one"])


def test_sets_are_encoded_in_one_order() -> None:
    bench = Bench(bank)
    assert bench.call("tag", words=["owl", "ape", "cat"]) == ["ape", "cat", "owl"]
    forward = bench.executor.state()[b"a"]
    bench.call("tag", "b", words=["cat", "owl", "ape"])
    assert bench.executor.state()[b"b"] == forward


def test_state_over_its_maximum_rolls_back() -> None:
    bench = Bench(bank, Limits(entity_bytes_max=200))
    bench.call("grow", size=10)
    before = dict(bench.executor.state())
    failure = bench.fail("grow", size=300)
    assert failure.code == "DL3006"
    assert "state of key 'a' would have" in failure.text
    assert bench.executor.state() == before


def test_reply_over_its_maximum_rolls_back() -> None:
    bench = Bench(bank, Limits(reply_bytes_max=100))
    assert bench.fail("echo", size=200).code == "DL3006"
    assert bench.executor.state() == {}
    assert bench.call("echo", size=50) == "x" * 50


def test_default_maximums_are_kept_for_large_values_too() -> None:
    bench = Bench(bank)
    assert bench.call("grow", size=20_000) is None
    assert bench.fail("grow", size=5 << 20).code == "DL3006"


def test_context_tells_of_its_own_turn() -> None:
    bench = Bench(bank)
    messages = [bench.message("tell", key) for key in ("x", "y")]
    replies, _ = bench.executor.execute(1, 1, 50, 1234, messages)
    for reply, key, lsn in zip(replies, ("x", "y"), (50, 51), strict=True):
        chance = Random(SEED, lsn)
        assert value(reply) == [key, lsn, 1234, chance.uuid(), chance.random()]


@pytest.mark.parametrize("what", ["context", "method", "closure", "random"])
def test_what_a_handler_kept_of_its_turn_is_dead_in_the_next(what: str) -> None:
    kept.clear()
    service = Service("late", state=Account)

    @service.handler
    def late(account: Account, ctx: Context) -> str:
        it = kept[0]
        if isinstance(it, Context):
            return it.key
        return str(it.random()) if isinstance(it, Random) else str(it())  # type: ignore[operator]  # a function

    service.handler(keep)
    bench = Bench(service)
    first, second = bench.run([bench.message("keep", what=what), bench.message("late")])
    assert value(first) is None
    assert (error(second).type, error(second).code) == ("Closed", "DL3014")
    assert bench.fail("late").type == "Closed"
    kept.clear()


def test_context_that_nobody_kept_is_used_again() -> None:
    service = Service("same", state=Account)
    seen: list[int] = []

    @service.handler
    def note(account: Account, ctx: Context) -> None:
        seen.append(id(ctx))

    bench = Bench(service)
    bench.run([bench.message("note")] * 5)
    assert len(set(seen)) == 1


def test_context_kept_by_a_stored_exception_is_dead() -> None:
    service = Service("trace", state=Account)
    errors: list[BaseException] = []

    @service.handler
    def fall(account: Account, ctx: Context) -> str:
        if errors:
            frame = errors[0].__traceback__
            assert frame is not None
            return str(frame.tb_frame.f_locals["ctx"].key)
        try:
            int("x")
        except ValueError as caught:
            errors.append(caught)
        return "kept"

    bench = Bench(service)
    first, second = bench.run([bench.message("fall"), bench.message("fall")])
    assert value(first) == "kept"
    assert error(second).type == "Closed"
    errors.clear()


def test_reply_of_an_idempotency_key_comes_again_without_a_turn() -> None:
    bench = Bench(bank)
    first = bench.send("deposit", A, b"key", amount=5)
    again = bench.send("deposit", A, b"key", amount=5)
    assert first == again
    assert state_of(bench) == Account(balance=5)
    assert bench.keys.remembered == 1


def test_idempotency_key_with_another_request_is_refused() -> None:
    bench = Bench(bank)
    bench.send("deposit", A, b"key", amount=5)
    for method, key, amount in (("deposit", A, 6), ("deposit", "b", 5), ("grow", A, 5)):
        arguments = {"amount": amount} if method == "deposit" else {"size": amount}
        assert bench.send(method, key, b"key", **arguments) == b"\x01refused"
    assert state_of(bench) == Account(balance=5)


def test_failures_and_refusals_are_remembered_as_well() -> None:
    bench = Bench(bank)
    for method in ("explode", "deposit", "nope"):
        key = method.encode()
        assert bench.send(method, A, key) == bench.send(method, A, key)
        assert key in bench.keys.replies


def test_recorded_reply_has_a_digest_of_its_own() -> None:
    bench = Bench(bank)
    message = bench.message("deposit", A, b"key", amount=5)
    replies, digests = bench.executor.execute(1, 1, 1, 7, [message, message])
    assert replies[0] == replies[1]
    assert digests[1] == zlib.crc32(replies[1])


def test_event_loop_is_hidden_during_turns_and_shown_again() -> None:
    events: list[str] = []

    def hide() -> Any:
        events.append("hidden")
        return lambda: events.append("shown")

    bench = Bench(bank, hide=hide)
    bench.call("nothing")
    bench.ask("balance")
    with pytest.raises(MemoryError):
        bench.send("explode", kind="MemoryError")
    assert events == ["hidden", "shown"] * 3


def test_rolling_update_is_a_hash_of_what_was_written() -> None:
    bench = Bench(bank)
    empty = bench.executor.rolling_update()
    bench.call("deposit", amount=1)
    once = bench.executor.rolling_update()
    assert len(empty) == len(once) == 32
    assert once != empty == bench.executor.rolling_update()


def test_restore_gives_the_state_back_and_discard_forgets_it() -> None:
    bench, other = Bench(bank), Bench(bank)
    bench.call("deposit", amount=5)
    snapshot = dict(bench.executor.state())
    other.call("deposit", "z", amount=9)
    other.executor.restore(snapshot)
    assert other.executor.state() == snapshot
    assert other.executor.rolling_update() == Bench(bank).executor.rolling_update()
    assert other.call("deposit", amount=1) == 6
    assert snapshot[b"a"] != other.executor.state()[b"a"]
    other.executor.discard()
    assert other.executor.state() == {}


def test_executor_needs_nothing_to_hide() -> None:
    plain = HandlerExecutor(bank, Limits(), SEED, Keys(), Cells(bytearray(PAGE_BYTES)))
    message = Bench(bank).message("deposit", amount=5)
    assert plain.execute(1, 1, 1, 7, [message]) == Bench(bank).executor.execute(1, 1, 1, 7, [message])


def test_executor_fits_the_engines_port() -> None:
    port: Executor = Bench(bank).executor
    assert port.state() == {}


def test_empty_batch_does_nothing() -> None:
    assert Bench(bank).run([]) == []


def test_reply_of_none_is_an_ok_reply() -> None:
    assert Bench(bank).send("nothing") == ok_reply(b"\xc0")
