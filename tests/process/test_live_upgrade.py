"""`deathless upgrade` on a set that runs, under load: nothing is lost, nothing doubled, whoever dies and whenever.

What is killed is killed at a moment that is looked for (a line of the command, the lock, head), and may come too late
on a busy machine. So a test says what must hold whichever code serves afterwards: one of the two does, every answer is
true, and the same command makes the upgrade.
"""

from __future__ import annotations

import http.client
import itertools
import json
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest
from cli_tool import read_until
from replica_set import DEADLINE_S, send_signal, wait_for
from upgraded_bank import (
    KEYS,
    Callers,
    UpgradedBank,
    version_1,
    version_1_again,
    version_2,
    version_3,
)

from deathless.base.errors import UpgradeRefused, UpgradeRequired
from deathless.shell.directory.members import read_members

PAIR = ("r0", "r1")
SLOW = 3_000_000  # rounds of the migration of each key: the lock is held meanwhile
Tool = subprocess.Popen[str]


def tool_of(bank: UpgradedBank, to: str, *more: str) -> Tool:
    return bank.start("upgrade", "--to", to, *more)


def until(tool: Tool, phase: str) -> None:
    """Read the command's lines up to a phase; one that ends before has done what it does then."""
    try:
        read_until(tool, phase)
    except AssertionError:
        tool.wait(DEADLINE_S)


def ended(tool: Tool) -> tuple[int, str]:
    output, errors = tool.communicate(timeout=3 * DEADLINE_S)
    return tool.returncode, output + errors


def again(bank: UpgradedBank, to: str, *more: str) -> str:
    """The same command once more: it ends well, whatever the first one came to."""
    return bank.upgrade(to, *more).stdout


# ---- nobody dies -------------------------------------------------------------------------------------------------


def test_state_is_migrated_under_load_and_all_replicas_follow(tmp_path: Path) -> None:
    with UpgradedBank(tmp_path) as bank:
        with Callers(bank) as callers:
            said = bank.upgrade(bank.code("v2", version_2())).stdout
            callers.wait_more()
        assert "it fits: 5 keys are migrated" in said
        bank.check(callers, generation=2, factor=100)
        assert bank.run("call", "bonus", "--key", "new", "--arg", "amount=3").stdout.strip() == "3"


def test_compatible_code_needs_no_version_and_leaves_the_states(tmp_path: Path) -> None:
    more = "\n\n@bank.query\ndef count(account: Account) -> int:\n    return len(account.tags)\n"
    with UpgradedBank(tmp_path, replicas=2) as bank:
        with Callers(bank) as callers:
            said = bank.upgrade(bank.code("more", version_1(more)), "--upgraders", "1").stdout
            callers.wait_more()
        assert "it fits: 5 keys stay as they are" in said
        bank.check(callers, generation=2, factor=1, names=PAIR)
        assert int(bank.run("query", "count", "--key", "k0").stdout) > 0


def test_files_edited_in_place_are_upgraded_to_and_started_with_later(tmp_path: Path) -> None:
    """With a runner that stays; then `down` and `up`; other code is refused there as ever; and a second upgrade."""
    with UpgradedBank(tmp_path, replicas=2, detach=False) as bank:
        with Callers(bank) as callers:
            (bank.folder / "service.py").write_text(version_2())
            bank.run("upgrade", "--upgraders", "1")
            callers.wait_more()
        bank.check(callers, generation=2, factor=100, names=PAIR)
        assert bank.runner is not None
        assert bank.runner.poll() is None
        bank.down()
        bank.runner.communicate(timeout=DEADLINE_S)
        assert bank.supervisors() == {}
        (bank.folder / "service.py").write_text(version_3())
        refused = bank.run("up", "--detach", "service.yaml", code=UpgradeRequired.exit_code).stderr
        assert "service changed (file service.py)" in refused
        (bank.folder / "service.py").write_text(version_2())
        bank.up()
        bank.check(callers, generation=2, factor=100, names=PAIR)
        (bank.folder / "service.py").write_text(version_3())
        with Callers(bank, name="later") as later:
            bank.run("upgrade", "--upgraders", "1")
            later.wait_more()
        bank.check(later.behind(callers), generation=3, factor=1000, names=PAIR)


def test_way_back_is_a_later_version_and_the_former_code_itself_is_refused(tmp_path: Path) -> None:
    with UpgradedBank(tmp_path, replicas=2) as bank:
        with Callers(bank) as callers:
            bank.upgrade(bank.code("v2", version_2()), "--upgraders", "1")
            callers.wait_more()
            plain = bank.upgrade("service.py:bank", "--upgraders", "1", code=UpgradeRefused.exit_code).stderr
            assert "error DL1023 UpgradeRefused" in plain
            assert "NoDownMigration: Account has no way back to version 1" in plain
            assert (bank.head().generation, bank.upgraders()) == (2, {})
            bank.upgrade(bank.code("back", version_1_again()), "--upgraders", "1")
            callers.wait_more()
        bank.check(callers, generation=3, factor=1, names=PAIR)


def test_shards_are_upgraded_one_after_the_other(tmp_path: Path) -> None:
    with UpgradedBank(tmp_path, replicas=1, shards=2) as bank:
        to = bank.code("v2", version_2())
        with Callers(bank) as callers:
            tool = tool_of(bank, to, "--upgraders", "1")
            until(tool, "shard 1: started")
            tool.kill()
            tool.communicate()
            callers.wait_more()
            said = again(bank, to, "--upgraders", "1")
            callers.wait_more()
        assert "serves already, generation 2" in said, "shard 0 was done"
        bank.check(callers, generation=2, factor=100, names=("r0",))


class Posts:
    """Deposits over HTTP without a pause, each with its key and repeated until it is answered.

    Attributes:
        answered: by idempotency key: account, body that was sent, and the answer.
        statuses: that came instead of an answer.
    """

    def __init__(self, bank: UpgradedBank) -> None:
        self.answered: dict[str, tuple[str, bytes, bytes]] = {}
        self.statuses: set[int] = set()
        self._bank = bank
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.errors: list[BaseException] = []

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait_more()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_S)
        assert not self.errors, self.errors

    def wait_more(self, count: int = 20) -> None:
        goal = len(self.answered) + count
        wait_for(lambda: len(self.answered) >= goal or bool(self.errors), "more HTTP calls", self._bank.told)

    def _run(self) -> None:
        try:
            count = 0
            while not self._stop.wait(0.01):
                key, tag = f"k{count % KEYS}", f"http.{count}.5"
                body = json.dumps({"amount": 5, "tag": tag}).encode()
                self.answered[tag] = key, body, self._until_answered(key, body, tag)
                count += 1
        except BaseException as error:
            self.errors.append(error)
            raise

    def _until_answered(self, key: str, body: bytes, tag: str) -> bytes:
        for number in itertools.count():
            addresses = self.doors()
            if addresses:
                status, said = post(addresses[number % len(addresses)], f"/bank/{key}/deposit", body, tag)
                if status == 200:
                    return said
                assert status in (0, 503, 504), (status, said)
                self.statuses.add(status)
            self._stop.wait(0.02)
        raise AssertionError

    def doors(self) -> list[str]:
        members = read_members(str(self._bank.directory)).values()
        return [member.ingress for member in members if member.ingress and not member.ingress.endswith(":0")]


def post(address: str, path: str, body: bytes, tag: str) -> tuple[int, bytes]:
    """Give status and body; status 0: the connection broke, or was refused."""
    connection = http.client.HTTPConnection(address, timeout=DEADLINE_S)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json", "Idempotency-Key": tag})
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()


def test_http_callers_lose_nothing_and_a_repeated_request_gets_its_recorded_answer(tmp_path: Path) -> None:
    with UpgradedBank(tmp_path, replicas=2, more="  ingress: {port: 0}\n") as bank:
        with Callers(bank, threads=1) as callers, Posts(bank) as posts:
            bank.upgrade(bank.code("v2", version_2()), "--upgraders", "1")
            callers.wait_more()
            posts.wait_more()
        callers.acknowledged += posts.answered
        callers.sent += posts.answered
        bank.check(callers, generation=2, factor=100, names=PAIR)
        before = bank.accounts()
        tag, (key, body, answer) = next(iter(posts.answered.items()))
        doors = posts.doors()
        assert len(doors) == len(PAIR)
        for door in doors:
            assert post(door, f"/bank/{key}/deposit", body, tag) == (200, answer), "of version 1, as it was recorded"
            assert post(door, "/bank/new/bonus", b'{"amount": 3}', "one-bonus") == (200, b"3"), "of version 2"
        assert bank.accounts() == before


# ---- what does not fit -------------------------------------------------------------------------------------------

WAITING = '''

@bank.handler
async def hold(account: Account, ctx: Context) -> bool:
    """Waits for somebody who never comes."""
    return await ctx.promise(bool)


@bank.handler
def bonus(account: Account, ctx: Context, amount: int) -> int:
    """Waits while `hold` has its key."""
    return amount
'''


def test_what_does_not_fit_is_refused_by_name_and_changes_nothing(tmp_path: Path) -> None:
    with UpgradedBank(tmp_path, replicas=2, source=version_1(WAITING)) as bank:
        holding = bank.start("call", "hold", "--key", "held", "--timeout", f"{3 * DEADLINE_S:g}")
        wait_for(lambda: bank.json("invocations", "list")["invocations"], "an invocation that waits", bank.told)
        with Callers(bank) as callers:
            before = bank.head()
            no_migration = bank.code("none", version_2(WAITING, migration=False).replace("def bonus(", "def first(", 1))
            said = bank.upgrade(no_migration, "--upgraders", "1", code=UpgradeRefused.exit_code).stderr
            assert "FieldDropped: Account.balance (int) of version 1 is not in version 2" in said
            no_handler = bank.code("gone", version_1())
            said = bank.upgrade(no_handler, "--upgraders", "1", code=UpgradeRefused.exit_code).stderr
            assert "error DL1023 UpgradeRefused" in said
            assert "HandlerGone: handler hold of version 1 is not in" in said
            callers.wait_more()
            assert (bank.head(), bank.upgraders()) == (before, {})
        bank.check(callers, generation=1, factor=1, names=PAIR)
        assert holding.poll() is None


# ---- what goes across the cut ------------------------------------------------------------------------------------

ACROSS = '''

from pathlib import Path
from threading import Event


@bank.activity
def gate(folder: str) -> str:
    """Ends once the file `go` is there."""
    pause = Event()
    while not (Path(folder) / "go").exists():
        pause.wait(0.02)
    return "open"


@bank.handler
async def wait_gate(account: Account, ctx: Context, folder: str) -> str:
    """Waits for an activity."""
    return f"{{await ctx.run(gate, folder)}}, by version {version}"


@bank.handler
async def wait_timer(account: Account, ctx: Context, seconds: int) -> str:
    """Waits for a timer."""
    await ctx.timer(after=timedelta(seconds=seconds))
    return f"rung, by version {version}"


@bank.handler
async def wait_call(account: Account, ctx: Context, folder: str) -> str:
    """Waits for a handler of another key."""
    said = await ctx.call("bank", "other", "wait_gate", {{"folder": folder}}, result=str)
    return f"({{said}}), by version {version}"


@bank.handler
async def wait_promise(account: Account, ctx: Context) -> str:
    """Waits for somebody."""
    return f"{{await ctx.promise(str)}}, by version {version}"
'''
TIMER_S = 45  # begun when the upgraders are ready: it ends behind the cut


def test_suspended_handlers_end_with_the_new_codes_answers(tmp_path: Path) -> None:
    with UpgradedBank(tmp_path, replicas=2, source=version_1(ACROSS.format(version=1))) as bank:
        folder = ("--arg", f"folder={tmp_path}")
        patient = ("--timeout", f"{3 * DEADLINE_S:g}")
        gated = bank.start("call", "wait_gate", "--key", "gated", *folder, *patient)
        calling = bank.start("call", "wait_call", "--key", "calling", *folder, *patient)
        promised = bank.start("call", "wait_promise", "--key", "promised", *patient)
        wait_for(lambda: len(bank.json("invocations", "list")["invocations"]) >= 4, "all wait", bank.told)
        with Callers(bank) as callers:
            tool = tool_of(bank, bank.code("v2", version_2(ACROSS.format(version=2))), "--upgraders", "1")
            until(tool, "preparing  started")
            timed = bank.start("call", "wait_timer", "--key", "timed", "--arg", f"seconds={TIMER_S}", *patient)
            code, said = ended(tool)
            assert code == 0, said
            callers.wait_more()
        (tmp_path / "go").touch()
        bank.run("invocations", "list")
        assert json.loads(ended(gated)[1]) == "open, by version 2"
        assert json.loads(ended(calling)[1]) == "(open, by version 2), by version 2"
        assert json.loads(ended(timed)[1]) == "rung, by version 2"
        assert promised.poll() is None
        bank.check(callers, generation=2, factor=100, names=PAIR)


# ---- somebody dies -----------------------------------------------------------------------------------------------


def workers_of(bank: UpgradedBank) -> list[int]:
    return [bank.worker(name) for name in bank.upgraders()]


def supervisors_of(bank: UpgradedBank) -> list[int]:
    return list(bank.upgraders().values())


Victims = Callable[[UpgradedBank], list[int]]


def while_preparing(bank: UpgradedBank, tool: Tool, victims: Victims) -> list[int]:
    until(tool, "preparing")

    def found() -> list[int] | None:
        return [pid for pid in victims(bank) if pid] or ([0] if tool.poll() is not None else None)

    return wait_for(found, "an upgrader")


def when_the_cut_is_ordered(bank: UpgradedBank, tool: Tool, victims: Victims) -> list[int]:
    until(tool, "checking")
    found = victims(bank)  # now, for the moment is short
    until(tool, "cutting")
    return found


def once_the_lock_is_taken(bank: UpgradedBank, tool: Tool, victims: Victims) -> list[int]:
    until(tool, "ready")
    before, found = bank.lock_epoch(), victims(bank)
    wait_for(lambda: bank.lock_epoch() > before or tool.poll() is not None, "a taking", bank.told)
    return found


def behind_the_commit(bank: UpgradedBank, tool: Tool, victims: Victims) -> list[int]:
    until(tool, "ready")
    found = victims(bank)
    wait_for(lambda: bank.head().generation == 2 or tool.poll() is not None, "the commit", bank.told)
    return found


Moment = Callable[[UpgradedBank, Tool, Victims], list[int]]
MOMENTS: list[Moment] = [while_preparing, when_the_cut_is_ordered, once_the_lock_is_taken, behind_the_commit]


@pytest.mark.parametrize("victims", [workers_of, supervisors_of], ids=["worker", "supervisor"])
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.__name__)
def test_upgrader_that_is_killed_leaves_one_code_that_serves(tmp_path: Path, moment: Moment, victims: Victims) -> None:
    with UpgradedBank(tmp_path, replicas=2) as bank:
        slow = tmp_path / "slow"
        slow.touch()
        to = bank.code("v2", version_2(work=SLOW, slow=slow))
        with Callers(bank) as callers:
            tool = tool_of(bank, to, "--upgraders", "1")
            for pid in moment(bank, tool, victims):
                send_signal(pid, signal.SIGKILL)
            callers.wait_more()
            ended(tool)
            callers.wait_more()
            assert bank.head().generation in (1, 2)
            slow.unlink()
            again(bank, to, "--upgraders", "1")
            callers.wait_more()
        bank.check(callers, generation=2, factor=100, names=PAIR)


@pytest.mark.parametrize("moment", [while_preparing, when_the_cut_is_ordered, once_the_lock_is_taken])
def test_old_primary_that_is_killed_in_the_middle_stops_no_upgrade(tmp_path: Path, moment: Moment) -> None:
    with UpgradedBank(tmp_path, replicas=2) as bank:
        to = bank.code("v2", version_2(work=SLOW))
        with Callers(bank) as callers:
            leader = bank.view().primary
            tool = tool_of(bank, to, "--upgraders", "1")
            for pid in moment(bank, tool, lambda bank: [bank.worker(leader)]):
                send_signal(pid, signal.SIGKILL)
            callers.wait_more()
            ended(tool)
            again(bank, to, "--upgraders", "1")
            callers.wait_more()
        bank.check(callers, generation=2, factor=100, names=PAIR)


@pytest.mark.parametrize("moment", [when_the_cut_is_ordered, once_the_lock_is_taken])
def test_upgrader_that_is_frozen_and_wakes_does_nothing_twice(tmp_path: Path, moment: Moment) -> None:
    """The command is killed meanwhile, so that nobody else stops the upgrader that wakes."""
    with UpgradedBank(tmp_path, replicas=2) as bank:
        # The second attempt is not slow: on a busy machine the work would take more than the 10 s that a migration has.
        slow = tmp_path / "slow"
        slow.touch()
        to = bank.code("v2", version_2(work=3 * SLOW, slow=slow))
        with Callers(bank) as callers:
            tool = tool_of(bank, to, "--upgraders", "1")
            pids = moment(bank, tool, workers_of)
            for pid in pids:
                send_signal(pid, signal.SIGSTOP)
            tool.kill()
            try:
                callers.wait_more()
                frozen_at = bank.head()
            finally:
                for pid in pids:
                    send_signal(pid, signal.SIGCONT)
            callers.wait_more(100)
            assert frozen_at.generation in (1, 2)
            slow.unlink()
            again(bank, to, "--upgraders", "1")
            callers.wait_more()
        bank.check(callers, generation=2, factor=100, names=PAIR)


def test_command_that_is_killed_at_each_step_is_gone_on_with_by_the_same_command(tmp_path: Path) -> None:
    with UpgradedBank(tmp_path, replicas=2) as bank:
        to = bank.code("v2", version_2())
        with Callers(bank) as callers:
            for phase in ("preparing", "ready", "checking", "cutting", "following", "leaving"):
                tool = tool_of(bank, to, "--upgraders", "1")
                until(tool, phase)
                tool.kill()
                tool.communicate()
                callers.wait_more()
            said = again(bank, to, "--upgraders", "1")
            callers.wait_more()
        assert "generation 2 serves" in said
        bank.check(callers, generation=2, factor=100, names=PAIR)


def test_upgraders_that_a_killed_command_left_go_when_other_code_is_upgraded_to(tmp_path: Path) -> None:
    with UpgradedBank(tmp_path, replicas=2) as bank:
        with Callers(bank) as callers:
            tool = tool_of(bank, bank.code("wrong", version_2("\n\nWRONG = 1\n")), "--upgraders", "1")
            until(tool, "preparing")
            tool.kill()
            tool.communicate()
            said = bank.upgrade(bank.code("v2", version_2()), "--upgraders", "1").stdout
            assert "of another upgrade stop" in said
            callers.wait_more()
        bank.check(callers, generation=2, factor=100, names=PAIR)


def test_down_stops_what_a_killed_command_left_and_the_upgrade_is_made_later(tmp_path: Path) -> None:
    with UpgradedBank(tmp_path, replicas=2, detach=False) as bank:
        to = bank.code("v2", version_2())
        tool = tool_of(bank, to, "--upgraders", "1")
        while_preparing(bank, tool, supervisors_of)
        tool.kill()
        tool.communicate()
        assert any(bank.upgraders().values())
        bank.down()
        assert bank.supervisors() == {}
        bank.up()
        with Callers(bank) as callers:
            assert "found r2" in again(bank, to, "--upgraders", "1")
            callers.wait_more()
        bank.check(callers, generation=2, factor=100, names=PAIR)
