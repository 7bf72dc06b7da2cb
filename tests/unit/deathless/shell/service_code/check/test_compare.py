"""Processes that differ in one thing are compared; planted leaks are found, and what they depend on is named."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from deathless.base.errors import InvalidService
from deathless.codec.messages import Kind, encode
from deathless.shell.service_code.check import compare as check_dynamic
from deathless.shell.service_code.check.calls import Call
from deathless.shell.service_code.check.compare import FACTORS, Difference, Factor, Patience

LEAKS = Path(__file__).parents[5] / "leaks"
AGAIN = FACTORS[0].name
# What each planted leak depends on.
CAUSES = {
    "address": AGAIN,
    "c_extension": "hash seed",
    "chance": AGAIN,
    "clock": AGAIN,
    "document": "working directory",
    "environ": "environment",
    "float_sum": "hash seed",
    "hashing": "hash seed",
    "language": "locale",
    "memory": "restart from a checkpoint",
    "set_order": "hash seed",
    "thread_identity": AGAIN,
}


def factors(*names: str) -> list[Factor]:
    return [factor for factor in FACTORS if factor.name in names]


def calls_of(*methods: str, arguments: bytes = b"\x80") -> list[Call]:
    return [
        Call(70 + n, n, encode(Kind.CALL, method=method.encode(), key=b"k", args=arguments))
        for n, method in enumerate(methods)
    ]


def compare(target: str, calls: list[Call], *, folder: str = ".", factors: Sequence[Factor]) -> list[Difference]:
    found = check_dynamic.compare_processes(target, calls, folder=folder, factors=factors)
    assert found.undecided == []
    return found.differences


def test_there_are_twelve_leaks() -> None:
    assert {path.stem for path in LEAKS.glob("*.py")} == set(CAUSES)
    assert len(CAUSES) == 12


@pytest.mark.parametrize("leak", sorted(CAUSES))
def test_leak_is_found_and_handler_lsn_and_cause_are_named(leak: str) -> None:
    calls = calls_of("innocent", "leak", "leak", "innocent")
    calls[0] = calls_of("innocent", arguments=b"\x81\xa6amount\x05")[0]
    (difference,) = compare(f"{leak}.py:service", calls, folder=str(LEAKS), factors=factors(CAUSES[leak]))
    assert difference.handler == "leak"
    assert difference.lsn == (72 if leak == "memory" else 71)
    assert difference.factor == CAUSES[leak]
    assert difference.before != difference.after


@pytest.mark.parametrize("leak", ["hashing", "memory"])
def test_leak_does_not_show_where_nothing_it_depends_on_differs(leak: str) -> None:
    calls = calls_of("leak", "leak")
    assert compare(f"{leak}.py:service", calls, folder=str(LEAKS), factors=factors("time zone")) == []


def test_handler_that_differs_in_several_processes_is_told_once() -> None:
    found = compare(
        "clock.py:service", calls_of("leak"), folder=str(LEAKS), factors=factors(AGAIN, "clock", "hash seed")
    )
    assert [difference.factor for difference in found] == [AGAIN]


TEXT = """
import sys, gc
from deathless import Context, Service, Struct
class State(Struct):
    n: int = 0
odd = Service("odd", state=State)
class Loop:
    def __init__(self): self.me = self
    def __del__(self): LEFT.append(1)
LEFT = []
@odd.handler
def die(state: State, ctx: Context) -> None:
    raise MemoryError(3)
@odd.handler
def die_by_hash(state: State, ctx: Context) -> None:
    if sys.flags.hash_randomization and hash("x") != HASH:
        raise MemoryError(3)
@odd.handler
def silent(state: State, ctx: Context) -> None:
    state.n = hash("x") % 1000
@odd.handler
def collected(state: State, ctx: Context) -> int:
    Loop()
    list(range(100)), [[] for _ in range(100)]
    return len(LEFT)
@odd.handler
def kill(state: State, ctx: Context) -> None:
    import os
    os._exit(9)
@odd.handler
def segfault(state: State, ctx: Context) -> None:
    import os, signal
    os.kill(os.getpid(), signal.SIGSEGV)
@odd.handler
def hang(state: State, ctx: Context) -> None:
    while True:
        pass
@odd.handler
def refuse(state: State, ctx: Context) -> None:
    raise ValueError("never")
@odd.handler
def fine(state: State, ctx: Context) -> list[int]:
    return [state.n]
"""


@pytest.fixture
def odd(tmp_path: Path) -> str:
    (tmp_path / "odd_of_dynamic.py").write_text(TEXT)
    return str(tmp_path / "odd_of_dynamic.py") + ":odd"


@pytest.fixture
def any_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call may wait for a busy machine as long as it has to; one that hangs here uses its processor."""
    monkeypatch.setattr(check_dynamic, "IDLE", 1000.0)


def test_handler_that_ends_its_process_is_named(odd: str) -> None:
    (difference,) = compare(odd, calls_of("fine", "die"), factors=())
    assert (difference.handler, difference.lsn) == ("die", 71)
    assert difference.after == "the end of the process: MemoryError: 3"


def test_handler_that_ends_one_process_only_is_named(odd: str) -> None:
    name = Path(odd.partition(":")[0])
    name.write_text(TEXT.replace("!= HASH", "% 2 == " + str(1 - _hash_bit())))
    found = compare(odd, calls_of("fine", "die_by_hash"), factors=[seed_of_other_bit()])
    assert [(one.handler, one.factor) for one in found] == [("die_by_hash", "hash seed")]


def _hash_bit(seed: str = "1") -> int:
    import os  # noqa: PLC0415  a helper of one test
    import subprocess  # noqa: PLC0415  as above
    import sys  # noqa: PLC0415  as above

    command = [sys.executable, "-c", "print(hash('x') % 2)"]
    done = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True)
    return int(done.stdout)


def seed_of_other_bit() -> Factor:
    seed = next(str(seed) for seed in range(2, 200) if _hash_bit(str(seed)) != _hash_bit())
    return Factor(name="hash seed", environment={"PYTHONHASHSEED": seed})


def test_difference_in_state_alone_is_shown(odd: str) -> None:
    (difference,) = compare(odd, calls_of("silent"), factors=factors("hash seed"))
    assert difference.before.startswith("state {'n': ")


def test_finalizers_show_where_garbage_is_collected(odd: str) -> None:
    found = compare(odd, calls_of("collected", "collected"), factors=factors("garbage collection"))
    assert [(one.handler, one.factor) for one in found] == [("collected", "garbage collection")]


def test_handler_that_leaves_its_process_no_time_is_named_all_the_same(odd: str) -> None:
    (difference,) = compare(odd, calls_of("fine", "fine", "kill"), factors=())
    assert (difference.handler, difference.lsn, difference.after) == ("kill", 72, "the end of the process: status 9")


def test_handler_that_kills_its_process_by_a_signal_is_named(odd: str) -> None:
    (difference,) = compare(odd, calls_of("fine", "segfault"), factors=())
    assert (difference.handler, difference.after) == ("segfault", "the end of the process: signal 11")


@pytest.mark.usefixtures("any_wait")
def test_calls_that_take_for_ever_are_left_out_and_told(odd: str) -> None:
    told: list[str] = []
    found = check_dynamic.compare_processes(
        odd,
        calls_of("fine", "hang", "silent", "hang", "hang", "fine"),
        factors=factors("hash seed"),
        patience=Patience(call_s=0.5),
        told=told.append,
    )
    assert found.undecided == ["hang: a call took longer than 0.5 s, so the rest of its calls were left out"]
    assert [one.handler for one in found.differences] == ["silent"], "everything else is looked at all the same"
    assert found.calls == 3
    assert told[0] == "a call of hang takes longer than 0.5 s; the rest of its calls are left out"
    assert told[-1] == "2 of 2 processes have run the calls"


@pytest.mark.usefixtures("any_wait")
def test_what_hangs_in_one_process_alone_is_told(odd: str) -> None:
    name = Path(odd.partition(":")[0])
    name.write_text(
        TEXT.replace("raise MemoryError(3)", "while True: pass").replace("!= HASH", "% 2 == " + str(1 - _hash_bit()))
    )
    found = check_dynamic.compare_processes(
        odd, calls_of("fine", "die_by_hash"), factors=[seed_of_other_bit()], patience=Patience(call_s=0.3)
    )
    assert found.differences == []
    assert found.undecided == ["what differs by hash seed, from call 71 of die_by_hash on"]


def test_time_in_all_is_bounded(odd: str) -> None:
    found = check_dynamic.compare_processes(odd, calls_of("hang"), factors=(), patience=Patience(9.0, 0.5))
    assert found == ([], {}, ["anything: the calls take longer than 0.5 s"], 0)


def test_service_that_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidService, match="there is no file"):
        compare("gone.py:x", calls_of("x"), folder=str(tmp_path), factors=())


def test_handler_whose_calls_all_fail_is_known(odd: str) -> None:
    found = check_dynamic.compare_processes(odd, calls_of("fine", "refuse", "refuse"), factors=())
    assert found.failing == {"refuse": "DL3014 ValueError: never"}


def test_values_that_are_too_long_or_cut_are_told_by_their_size() -> None:
    assert check_dynamic._value_text(b"\x93\x01") == "2 bytes"
