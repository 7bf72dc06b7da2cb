"""An application in any language is the code of a service, whichever process is killed."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
from cli_tool import ROOT
from counter_service import ADD, Counter, add
from go_program import go_counter
from replica_set import children_of, send_signal, wait_for

from deathless.base.errors import InvalidArgument
from deathless.sdk.client import SyncClient
from deathless.shell.link.application_status import ApplicationStatus, read_statuses
from deathless.shell.web.application_metrics import ask_application

TRIES = 5
SETTLED_US = 4_000_000
EXAMPLES = ROOT / "examples" / "foreign"
PLACE, BOOK = 1, 5  # of orders.py


@pytest.fixture(params=["python", "go"])
def program(request: pytest.FixtureRequest) -> Path:
    """The example's counter."""
    if request.param == "python":
        return ROOT / "examples" / "foreign" / "counter.py"
    return go_counter()


def test_nothing_is_lost_or_done_twice_whatever_is_killed(program: Path, tmp_path: Path) -> None:
    """The application that leads, one that follows, the process beside it, and the whole replica, under load."""
    with Counter(tmp_path, program) as counter, counter.client() as client:
        counter.up()
        counter.wait_for_all()
        client.call("send", "", method=ADD, args=bytes(1000))
        done = 0
        ended = threading.Event()

        def more_than(count: int) -> bool:
            return done > count

        def load() -> None:
            nonlocal done
            with counter.client() as mine:
                while not ended.is_set():
                    add(mine, 1)
                    done += 1

        work = threading.Thread(target=load)
        work.start()
        try:
            for victim in ("leader", "follower", "host", "replica"):
                kill(counter, victim)
                wait_for(partial(more_than, done + 5), f"calls behind the death of {victim}")
            counter.up()  # the replica that was killed
        finally:
            ended.set()
            work.join()
        assert add(client, 0) == 1000 + done
        counter.wait_for_all(counter.wait_for_all().position)
        assert not any(each.differences for each in read_statuses(str(counter.directory)))
        wait_for(partial(shown_leader, counter), "one leader in what is shown")
        again = counter.json("ambrosia", "replay", "--from", "oldest")
        assert again["differs"] is None and again["rows"] > 0


def test_replica_whose_program_is_there_leads_when_the_leaders_program_dies(tmp_path: Path) -> None:
    """It is known to be there while its status is news; where nobody is, the program begins again, and dies again."""
    with Counter(tmp_path, ROOT / "examples" / "foreign" / "counter.py") as counter, counter.client() as client:
        counter.up()
        taken_over = any(hands_over(counter) for _ in range(TRIES))
        assert taken_over
        assert add(client, 7) == 7
        counter.wait_for_all()


def test_what_a_program_did_is_counted_over_its_processes(tmp_path: Path) -> None:
    """Metrics of the process that keeps it: the program is killed, and takes a checkpoint."""
    calls = 60  # a program without others takes a checkpoint once four times as much is due
    with Counter(tmp_path, ROOT / "examples" / "foreign" / "counter.py") as counter, counter.client() as client:
        counter.write_manifest(1)
        counter.up()
        assert [add(client, 1) for _ in range(calls)][-1] == calls
        pid = wait_for(lambda: asked(counter, starts=1), "its metrics").pid
        assert send_signal(pid, signal.SIGKILL)
        assert add(client, 1) == calls + 1
        told = wait_for(lambda: asked(counter, starts=2), "its second start")
        assert list(told.ends.values()) == [1] and told.pid != pid
        assert told.checkpoints
        assert (told.checkpoint_failures, told.differences, told.too_long, told.unnamed) == (0, 0, 0, 0)
        later = wait_for(lambda: asked(counter, starts=2, position=calls, checkpoint=1), "its rows and a checkpoint")
        assert (later.behind_rows, later.checkpoint_bytes > 0) == (0, True)


def test_status_says_that_the_program_ends_again_and_again(tmp_path: Path) -> None:
    """And that it serves, once it does."""
    with Counter(tmp_path, ROOT / "examples" / "foreign" / "counter.py") as counter, counter.client() as client:
        counter.write_manifest(1)
        copy = tmp_path / "counter.py"
        copy.write_text("raise SystemExit(3)\n")
        counter.up()
        text = wait_for(lambda: shown_failing(counter), "a status that says so")
        assert "r0 is primary, but its program does not serve" in text and "r0: program failing: DL3103" in text
        shutil.copy(counter.program, copy)
        assert add(client, 7) == 7
        wait_for(lambda: counter.run("status", code=None).returncode == 0, "a status in which all is well")


def test_methods_are_called_by_their_numbers_from_the_command_line(tmp_path: Path) -> None:
    """Once under one key, whether the answer is waited for or not; a program's error is one of the command."""
    with Counter(tmp_path, ROOT / "examples" / "foreign" / "counter.py") as counter:
        counter.write_manifest(1)
        counter.up()
        (tmp_path / "order").write_bytes(bytes(5))
        for _ in range(2):
            told = counter.json("call", str(ADD), "--bytes-from", "order", "--idempotency-key", "one")
            assert (told["hex"], told["idempotencyKey"]) == ((5).to_bytes(8, "little").hex(), "one")
        assert counter.run("call", str(ADD), "--hex", "00 01", "--fork").stdout == ""
        assert counter.run("call", str(ADD), "--bytes", "abc").stdout.strip() == (10).to_bytes(8, "little").hex()
        refused = counter.run("call", "call", "--hex", "00", code=None)
        assert refused.returncode == InvalidArgument.exit_code and "--hex is for methods" in refused.stderr


def shown_failing(counter: Counter) -> str:
    """What `deathless status` shows; empty: the program has not ended often enough."""
    done = counter.run("status", code=None)
    return done.stdout if done.returncode == 69 and "program failing" in done.stdout else ""


def asked(counter: Counter, *, starts: int, position: int = 0, checkpoint: int = -1) -> ApplicationStatus | None:
    """What the process that keeps the program says, once that leads, has begun so often and is so far."""
    told = asyncio.run(ask_application(counter.config()))
    if told is None or (told.state, told.starts) != ("leading", starts):
        return None
    return told if told.position >= position and told.checkpoint_position >= checkpoint else None


def shown_leader(counter: Counter) -> str | None:
    """The replica whose program leads, if the command shows one, in both forms."""
    told = counter.json("ambrosia", "status")["programs"]
    leads = [each["replica"] for each in told if each["state"] == "leading"]
    text = counter.run("ambrosia", "status").stdout
    return leads[0] if len(leads) == 1 and f"{leads[0]}       leading" in text else None


def hands_over(counter: Counter) -> bool:
    """Kill the program that leads; whether one of another replica leads then."""
    former = settled(counter)
    assert send_signal(former.pid, signal.SIGKILL)
    leader = wait_for(partial(another_leader, counter, former.pid), "a program that leads")
    return leader.replica != former.replica and leader.epoch > former.epoch


def settled(counter: Counter) -> ApplicationStatus:
    """Wait until all programs serve and each status was news a few times; gives that of the leader."""
    counter.wait_for_all()
    before = {each.replica: each.at_us for each in read_statuses(str(counter.directory))}

    def told_anew() -> bool:
        found = read_statuses(str(counter.directory))
        return all(each.at_us - before[each.replica] > SETTLED_US for each in found)

    wait_for(told_anew, "statuses that are news")
    return counter.wait_for_all()


def another_leader(counter: Counter, pid: int) -> ApplicationStatus | None:
    """The program that leads, if it is not this process."""
    leader = counter.leader()
    return leader if leader is not None and leader.pid != pid else None


def kill(counter: Counter, victim: str) -> None:
    """Kill a process, with SIGKILL."""
    leader = counter.wait_for_all()
    supervisors = counter.supervisors()
    match victim:
        case "leader":
            pid = leader.pid
        case "follower":
            pid = next(each.pid for each in read_statuses(str(counter.directory)) if each.state == "following")
        case "host":
            pid = wait_for(lambda: children_of(supervisors[leader.replica], "deathless.foreign.host"), "its host")[0]
        case _:
            pid = supervisors[leader.replica]
    assert send_signal(pid, signal.SIGKILL)


def test_another_program_goes_on_where_the_former_one_was(tmp_path: Path) -> None:
    """It adds twice as much, and has its state in a format of its own; what was logged is not added again."""
    with Counter(tmp_path, ROOT / "examples" / "foreign" / "counter.py") as counter, counter.client() as client:
        counter.write_manifest(1)
        counter.up()
        assert [add(client, 5) for _ in range(25)][-1] == 125
        later = tmp_path / "next" / "later.py"
        later.parent.mkdir()
        later.write_text(
            counter.program.read_text()
            .replace("self.bytes += len", "self.bytes += 2 * len")
            .replace("return STATE.pack(", 'return b"later " + STATE.pack(')
            .replace("unpack(state)", 'unpack(state.removeprefix(b"later "))')
        )
        again = [sys.executable, str(later)]
        assert "to $callers" in counter.run("ambrosia", "replay", *again, code=1).stdout
        assert "DL3111" in counter.run("ambrosia", "upgrade", *again, code=64).stderr
        counter.down()
        counter.program = later
        counter.write_manifest(1)
        assert counter.json("ambrosia", "upgrade")["upgraded"]
        counter.up()
        assert add(client, 10) == 125 + 20


def test_a_program_and_a_python_service_call_each_other_once_whoever_is_killed(tmp_path: Path) -> None:
    """The program calls a method of the till, which sends to the program and asks it; orders stand in both books."""
    with Counter(tmp_path, EXAMPLES / "orders" / "orders.py") as program, program.client() as client:
        till = tmp_path / "till.py"
        till.write_text((EXAMPLES / "orders" / "till.py").read_text().replace('"orders"', '"bank"'))
        manifest = (EXAMPLES / "orders" / "till.yaml").read_text().replace("replicas: 3", "replicas: 1")
        (tmp_path / "till.yaml").write_text(manifest)
        program.up()
        program.run("up", "--detach", "till.yaml")
        try:
            with SyncClient("till", [f"dir:{tmp_path / '.deathless' / 'till'}"]) as tills:
                for number, victim in enumerate(("leader", "host"), 1):
                    paid = client.foreign(PLACE, b"%d alice 5" % (2 * number), timeout=None)
                    kill(program, victim)
                    again = client.foreign(PLACE, b"%d alice 5" % (2 * number + 1), timeout=None)
                    assert (paid, again) == (b"%d" % (5 * number), b"%d" % (5 * number + 5))
                    assert tills.call("give_back", "alice", order=2 * number, timeout=None) == 5 * number
            book = wait_for(lambda: settled_book(client), "receipts of all orders")
        finally:
            program.run("down", "-f", "till.yaml", code=None)
        assert [line.split()[-1] for line in book] == ["1", "0", "1", "0"]  # what was given back was asked for once


def settled_book(client: SyncClient) -> list[str] | None:
    """The program's book, once each order has its receipt."""
    lines = (client.foreign(BOOK, b"0") or b"").decode().splitlines()
    return lines if all(line.split()[3:8] == ["1", "1", "1", "0", "1"] for line in lines) else None
