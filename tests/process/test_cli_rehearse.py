"""`deathless upgrade rehearse` on the log of a real service: what it finds, lets pass, and leaves alone."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from cli_tool import Bank
from replica_set import DEADLINE_S, send_signal, wait_for

from deathless.base.errors import CodeEndedProcess, FormerCodeMissing, InvalidService

DIFFERS = 78
SOURCE = '''"""A till, version {version}."""

import os
import time
from datetime import timedelta

from deathless import CallRefused, Context, Migration, Service, Struct


class Till(Struct):
    cents: int = 0
    tags: list[str] = []


till = Service("bank", state=Till, version={version})


@till.handler
def deposit(till: Till, ctx: Context, amount: float, fee: float = 0.015) -> int:
    till.cents += round(100 * amount * (1 - fee))
    return till.cents


@till.handler
def withdraw(till: Till, ctx: Context, amount: int) -> int:
    if amount > till.cents:
        raise CallRefused("not enough")
    till.cents -= amount
    return till.cents


@till.handler
def tag(till: Till, ctx: Context, tags: list[str]) -> list[str]:
    till.tags = sorted(set(tags))
    ctx.fork("log", "tags", "note", {{"count": len(tags)}})
    ctx.fork("log", "audit", "note", {{"count": len(tags)}})
    return till.tags


@till.handler
async def later(till: Till, ctx: Context, amount: int) -> int:
    await ctx.timer(after=timedelta(hours=1))
    till.cents += amount
    return till.cents


@till.handler
def never(till: Till, ctx: Context) -> None:
    till.cents = 0
'''
FORBIDDEN = """

@till.handler
def outside(till: Till, ctx: Context) -> int:
    return os.system("touch outside")
"""
UP = """

@till.migrate(from_=1)
def up(old: Till, m: Migration) -> Till:
    return old


till.changes(from_=1, changed={"deposit": {"reply": "another fee", "state": "another fee"}})
"""
ROUNDING = ("round(100 * amount * (1 - fee))", "int(100 * amount * (1 - fee))")
BUGS: dict[str, tuple[tuple[tuple[str, str], ...], dict[str, int]]] = {
    "several at once": (
        (
            ("round(100 * amount * (1 - fee))", "int(100 * amount * (1 - fee))"),
            ('"not enough"', '"too little"'),
            ("hours=1", "minutes=1"),
            ('    ctx.fork("log", "audit", "note", {"count": len(tags)})\n', ""),
        ),
        {
            "ReplyDiffers:deposit": 1,
            "StateDiffers:deposit": 1,
            "ReplyDiffers:withdraw": 1,
            "CallsDiffer:tag": 1,
            "CallsDiffer:later": 1,
        },
    ),
    "another time to wait": ((("hours=1", "minutes=1"),), {"CallsDiffer:later": 1}),
    "another default": ((("= 0.015", "= 0.5"),), {"ReplyDiffers:deposit": 3, "StateDiffers:deposit": 3}),
    "the order of a set": ((("sorted(set(tags))", "list(set(tags))"),), {"NotDeterministic:tag": 1}),
    "the wall clock": (
        (("return till.tags", "return [str(time.perf_counter_ns())]"),),
        {"ReplyDiffers:tag": 1, "NotDeterministic:tag": 1},
    ),
    "the end of the process": (
        (("import os", "import ctypes, os"), ('raise CallRefused("not enough")', "ctypes.string_at(0)")),
        {"Ended:withdraw": 1},
    ),
    "what a turn may not do": ((('raise CallRefused("not enough")', "os._exit(3)"),), {"Raised:withdraw": 1}),
}


def code(bank: Bank, name: str, *changes: tuple[str, str], version: int = 1, more: str = "") -> str:
    """The till's code with changes, in a folder beside it; gives what --to takes."""
    source = SOURCE.format(version=version)
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new)
    (bank.folder / name).mkdir()
    (bank.folder / name / "service.py").write_text(source + more)
    return f"{name}/service.py:till"


def tills(folder: Path, more: str = "") -> Bank:
    bank = Bank(folder, replicas=1, more=more)
    (folder / "service.py").write_text(SOURCE.format(version=1))
    bank.manifest.write_text(bank.manifest.read_text().replace(":bank", ":till"))
    return bank


def day(bank: Bank) -> None:
    """What callers do."""
    for key, amount in (("alice", "1.5"), ("alice", "2"), ("bob", "30")):
        bank.run("call", "deposit", "--key", key, "--arg", f"amount={amount}")
    bank.run("call", "withdraw", "--key", "bob", "--arg", "amount=1000000", code=None)
    bank.run("call", "tag", "--key", "alice", "--arg", f"tags={json.dumps([f't{each}' for each in range(40)])}")
    bank.run("call", "later", "--key", "carol", "--arg", "amount=5", "--timeout", "1", code=None)


def children_of(pid: int) -> list[int]:
    """Pids of its children."""
    told = (path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    return [int(child) for line in told for child in line.split()]


def runs(pid: int) -> bool:
    """Is there such a process?"""
    return Path(f"/proc/{pid}").exists()


def words(told: dict[str, Any]) -> dict[str, int]:
    return {f"{each['kind']}:{each['handler']}": each.get("count", 1) for each in told["differences"]}


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of everything in a folder."""
    found = ((path, path.stat()) for path in folder.rglob("*") if path.is_file())
    return {str(path): (stat.st_size, stat.st_mtime_ns) for path, stat in found}


def test_bugs_are_found_on_the_log_of_a_service_and_nothing_is_changed(tmp_path: Path) -> None:
    with tills(tmp_path) as bank:
        bank.up()
        day(bank)
        same = bank.json("upgrade", "rehearse", "--to", "service.py:till")
        assert (same["passed"], same["sameCode"], same["notCovered"]) == (True, True, ["never"])
        assert (same["differences"], same["misfits"], same["messages"]) == ([], [], same["lsn"])
        both = bank.json("upgrade", "rehearse", "--to", "service.py:till", "--side-by-side")
        assert (same["byDigests"], both["byDigests"]) == (True, False)
        apart = ("seconds", "perSecond", "byDigests")
        assert all(same[each] == both[each] for each in same if each not in apart)
        bank.down()
        before = files(bank.directory)
        for number, (name, (changes, expected)) in enumerate(BUGS.items()):
            told = bank.json("upgrade", "rehearse", "--to", code(bank, f"bug{number}", *changes), code=DIFFERS)
            found = words(told)
            if name == "the order of a set":  # it is the former one in the rarest of cases
                found.pop("StateDiffers:tag", None)
                found.pop("ReplyDiffers:tag", None)
            assert found == expected, name
        assert files(bank.directory) == before


def test_what_is_declared_passes_and_the_next_rehearsal_begins_behind_the_upgrade(tmp_path: Path) -> None:
    with tills(tmp_path) as bank:
        bank.up()
        day(bank)
        other_fee = ("1 - fee", "1 - 2 * fee")
        second = code(bank, "v2", other_fee, version=2, more=UP)
        told = bank.run("upgrade", "rehearse", "--to", second).stdout
        assert "declared (another fee): ReplyDiffers: deposit (3 times, the first is lsn" in told
        assert "passed (" in told
        bank.run("upgrade", "--to", second, "--upgraders", "1")
        day(bank)
        third = code(bank, "v3", version=2)
        told = bank.json("upgrade", "rehearse", "--to", third, code=DIFFERS)
        assert words(told) == {"ReplyDiffers:deposit": 3, "StateDiffers:deposit": 3}, "the three behind it alone"
        assert told["startedAt"] > 0


def test_a_part_of_the_log_is_run_from_a_checkpoint(tmp_path: Path) -> None:
    with tills(tmp_path) as bank:
        bank.up()
        day(bank)
        lsn = bank.json("checkpoint", "take")["lsn"]
        for _ in range(3):
            bank.run("call", "deposit", "--key", "bob", "--arg", "amount=1")
        fee = code(bank, "fee", ("= 0.015", "= 0.5"))
        rehearse = ("upgrade", "rehearse", "--to", fee)
        told = bank.json(*rehearse, "--from", str(lsn), code=DIFFERS)
        assert (told["startedAt"], words(told)["ReplyDiffers:deposit"]) == (lsn, 3)
        assert (told["coverage"][0]["turns"], told["coverage"][3]["handler"]) == (3, "later")
        few = bank.json(*rehearse, "--from", str(lsn), "--messages", "1", code=None)
        assert 1 <= few["messages"] < told["messages"]
        earlier = bank.json(*rehearse, "--from", str(lsn - 1), code=DIFFERS)
        assert (earlier["startedAt"], words(earlier)["ReplyDiffers:deposit"]) == (0, 6)


def test_code_that_does_not_fit_is_told_and_not_run(tmp_path: Path) -> None:
    with tills(tmp_path) as bank:
        bank.up()
        bank.run("call", "deposit", "--key", "alice", "--arg", "amount=1")
        told = bank.run("upgrade", "rehearse", "--to", code(bank, "gone", ("cents", "pence")), code=DIFFERS).stdout
        assert "FieldDropped: Till.cents" in told
        assert "differs: 1 thing to see to (0 messages" in told
        broken = code(bank, "broken", ("import os", "import nothing_of_that_name"))
        said = bank.run("upgrade", "rehearse", "--to", broken, code=InvalidService.exit_code).stderr
        assert "nothing_of_that_name" in said


@pytest.mark.parametrize(("signal_number", "side_by_side"), [(signal.SIGINT, True), (signal.SIGKILL, False)])
def test_a_rehearsal_that_is_interrupted_leaves_nothing(
    tmp_path: Path, signal_number: int, *, side_by_side: bool
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with tills(tmp_path / "bank") as bank:
        bank.up()
        bank.run("call", "withdraw", "--key", "alice", "--arg", "amount=1", code=None)
        hangs = code(
            bank, "hangs", ('raise CallRefused("not enough")', 'open("begun", "w").close() or os.read(os.pipe()[0], 1)')
        )
        more = ("--side-by-side",) if side_by_side else ()
        process = bank.start("upgrade", "rehearse", "--to", hangs, *more, environment={"TMPDIR": str(scratch)})
        wait_for((bank.folder / "begun").exists, "the handler to begin")
        children = children_of(process.pid)
        assert len(children) == (3 if side_by_side else 2)
        send_signal(process.pid, signal_number)
        process.wait(DEADLINE_S)
        wait_for(lambda: not any(map(runs, children)), "its processes to end")
        assert list(scratch.iterdir()) == []


def test_what_a_turn_may_not_do_is_done_by_no_tool(tmp_path: Path) -> None:
    source = SOURCE.format(version=1) + FORBIDDEN
    with tills(tmp_path) as bank:
        (bank.folder / "service.py").write_text(source)
        bank.up()
        bank.run("call", "deposit", "--key", "alice", "--arg", "amount=1")
        refused = bank.run("call", "outside", "--key", "alice", code=None)
        assert "DL3032" in refused.stderr
        assert bank.json("replay", "--from", "0")["messages"] > 0
        assert bank.json("log", "verify")["problems"] == []
        (bank.folder / "v2").mkdir()
        (bank.folder / "v2" / "service.py").write_text(source.replace("= 0.015", "= 0.5"))
        told = bank.json("upgrade", "rehearse", "--to", "v2/service.py:till", code=DIFFERS)
        assert words(told) == {"ReplyDiffers:deposit": 1, "StateDiffers:deposit": 1}
        bank.run("upgrade", "--to", "v2/service.py:till", "--upgraders", "1")
        assert not (bank.folder / "outside").exists()


def test_code_that_ends_its_process_at_its_import_is_told_by_all_that_run_the_log(tmp_path: Path) -> None:
    with tills(tmp_path) as bank:
        source = bank.folder / "service.py"
        flag = tmp_path / "ends"
        source.write_text(f"{source.read_text()}\nif os.path.exists({str(flag)!r}):\n    os._exit(0)\n")
        bank.up()
        bank.run("call", "tag", "--key", "alice", "--arg", 'tags=["a"]')
        new = code(bank, "new")
        flag.touch()
        for command, which in (
            (("upgrade", "rehearse", "--to", new, "--side-by-side"), "service.py:till (the former code)"),
            (("replay", "--quiet"), "service.py:till"),
            (("fork", "-f", bank.manifest.name, "--to", "forked"), "service.py:till"),
        ):
            said = bank.run(*command, code=CodeEndedProcess.exit_code).stderr
            assert CodeEndedProcess.code in said
            assert f"{which} ended with status 0, and said nothing of what came of it" in said


def test_all_shards_are_rehearsed_and_one_that_can_not_be_is_named(tmp_path: Path) -> None:
    with tills(tmp_path, "  shards: 2\n") as bank:
        bank.up()
        for key in ("alice", "bob", "carol", "dora"):
            bank.run("call", "deposit", "--key", key, "--arg", "amount=1.5")
        new = code(bank, "new", ROUNDING)
        found = bank.json("upgrade", "rehearse", "--to", new, code=DIFFERS)
        assert [(each["shard"], each["of"]) for each in found["shards"]] == [(0, 2), (1, 2)]
        assert found["messages"] == sum(each["messages"] for each in found["shards"])
        one = bank.json("upgrade", "rehearse", "--to", new, "--shard", "1", code=DIFFERS)
        assert (one["shard"], one["messages"]) == (1, found["shards"][1]["messages"])
        bank.run("down")
        (bank.directory / "shards" / "1" / "code").rename(tmp_path / "away")
        said = bank.run("upgrade", "rehearse", "--to", new, "--json", code=FormerCodeMissing.exit_code)
        first, second = json.loads(said.stdout)["shards"]
        assert (first["shard"], first["passed"], second["shard"]) == (0, False, 1)
        assert second["error"]["what"].startswith("shard 1: ")
