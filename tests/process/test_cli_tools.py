"""Commands on a running service, as a user types them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_tool import Bank
from replica_set import wait_for

from deathless.base.errors import CallRefused, InvalidArgument, PeerUnreachable, Unauthorized, UnknownHandler

DOWN = 69


@pytest.fixture(scope="module", name="bank")
def running_bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    """A bank of three replicas that runs."""
    with Bank(tmp_path_factory.mktemp("bank")) as bank:
        bank.up()
        wait_for(lambda: roles(bank) == ["checkpointer", "primary", "standby"], "all roles")
        yield bank


def roles(bank: Bank) -> list[str]:
    """Roles of the replicas that run."""
    return sorted(one["role"] for one in bank.json("status")["replicas"] if one["state"] == "running")


def test_status_shows_all_replicas(bank: Bank) -> None:
    view = bank.json("status")
    assert [one["replica"] for one in view["replicas"]] == ["r0", "r1", "r2"]
    assert view["unreachedPeers"] == []
    text = bank.run("status").stdout
    assert text.startswith(f"bank: {view['primary']} is primary, epoch {view['epoch']}; 3 of 3 replicas run\n")
    assert "checkpointer" in text


def test_status_is_found_by_folder_too(bank: Bank, tmp_path: Path) -> None:
    assert "3 of 3 replicas run" in bank.run("status", "--dir", str(bank.directory), cwd=tmp_path).stdout


def test_status_goes_on_with_watch(bank: Bank) -> None:
    process = bank.start("status", "--watch", "--json", "--interval", "0.1")
    assert process.stdout is not None
    assert [process.stdout.readline().startswith('{"service":"bank"') for _ in range(3)] == [True] * 3
    process.terminate()


def test_call_and_query_give_json(bank: Bank) -> None:
    assert bank.run("call", "deposit", "-k", "alice", "-a", "amount=500").stdout == "500\n"
    assert bank.run("query", "balance", "-k", "alice").stdout == "500\n"
    assert bank.json("query", "balance", "-k", "alice", "--stale") == {"result": 500}
    assert bank.run("call", "transfer", "-a", "source=alice", "-a", "target=bob", "-a", "amount=200").stdout == "null\n"
    assert bank.json("query", "balance", "-k", "bob")["result"] == 200


def test_call_with_one_key_is_applied_once(bank: Bank) -> None:
    first = bank.json("call", "deposit", "-k", "carol", "-a", "amount=7")
    again = bank.json("call", "deposit", "-k", "carol", "-a", "amount=7", "--idempotency-key", first["idempotencyKey"])
    assert first == again
    assert bank.json("query", "balance", "-k", "carol")["result"] == 7


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("call", "deposit", "-k", "x", "-a", "amount=many"), InvalidArgument.exit_code, "$.amount"),
        (("call", "deposit", "-k", "x", "-a", "amount=0"), CallRefused.exit_code, "CallRefused: a deposit must be"),
        (("call", "deposits", "-k", "x"), UnknownHandler.exit_code, "'deposits' is a query"),
        (("query", "nothing", "-k", "x"), UnknownHandler.exit_code, "nothing"),
        (("call", "deposit", "-k", "x", "-a", "amount"), InvalidArgument.exit_code, "NAME=VALUE"),
        (("switchover", "--to", "r9"), InvalidArgument.exit_code, "r9 is no replica"),
        (("replay", "--from", "soon"), InvalidArgument.exit_code, "checkpoint, 0, or an lsn"),
        (("replay", "--to", "99999999"), InvalidArgument.exit_code, "above the last confirmed message"),
        (("checkpoint", "show", "1"), InvalidArgument.exit_code, "no checkpoint stands at lsn 1"),
    ],
)
def test_mistake_is_told_with_its_exit_code(bank: Bank, arguments: tuple[str, ...], code: int, words: str) -> None:
    done = bank.run(*arguments, code=code)
    assert done.stdout == ""
    assert words in done.stderr


def test_switchover_hands_the_role_over(bank: Bank) -> None:
    wait_for(lambda: roles(bank) == ["checkpointer", "primary", "standby"], "all roles")
    before = bank.json("status")
    target = next(one["replica"] for one in before["replicas"] if one["role"] == "standby")
    told = bank.json("switchover", "--to", target)
    assert (told["from"], told["to"]) == (before["primary"], target)
    assert told["epoch"] > before["epoch"]
    wait_for(lambda: bank.json("status")["primary"] == target, "the new primary")
    wait_for(lambda: roles(bank) == ["checkpointer", "primary", "standby"], "all roles")


def test_nothing_is_parked_where_nothing_kills(bank: Bank) -> None:
    assert bank.json("parked") == {"parked": [], "count": 0}
    assert bank.json("invocations", "unknown") == {"unknown": [], "count": 0}
    assert bank.run("parked").stdout == "nothing is parked\n"


def test_checkpoint_is_taken_listed_and_shown(bank: Bank) -> None:
    bank.run("call", "deposit", "-k", "dave", "-a", "amount=11")
    lsn = bank.json("checkpoint", "take")["lsn"]
    listed = bank.json("checkpoint", "ls")["checkpoints"]
    assert lsn in [each["lsn"] for each in listed]
    assert bank.json("checkpoint", "show", "--state")["state"]["dave"] == {"balance": 11, "deposits": 1}
    assert f"{lsn:,}" in bank.run("checkpoint", "ls").stdout
    assert "stateDigest" in bank.run("checkpoint", "show").stdout


def test_log_is_read_verified_and_replayed_while_it_is_written(bank: Bank) -> None:
    for amount in range(1, 4):
        bank.run("call", "deposit", "-k", "erin", "-a", f"amount={amount}")
        assert bank.json("log", "verify")["problems"] == []
    assert bank.json("replay", "-k", "erin")["state"] == {"erin": {"balance": 6, "deposits": 3}}
    shown = [line for line in bank.run("log", "show", "--key", "erin").stdout.splitlines() if "deposit" in line]
    assert len(shown) == 3


def test_nothing_answers_where_nothing_runs(tmp_path: Path) -> None:
    with Bank(tmp_path) as bank:
        assert "no replica is announced" in bank.run("status", code=DOWN).stdout
        for waits in (("query", "balance", "-k", "x"), ("call", "deposit", "-k", "x"), ("invocations", "wait", "5")):
            done = bank.run(*waits, "--timeout", "3600", code=PeerUnreachable.exit_code)
            assert "error DL1005" in done.stderr
            assert "deathless up service.yaml" in done.stderr
        for asks in (("parked",), ("switchover",), ("checkpoint", "take")):
            assert "deathless up service.yaml" in bank.run(*asks, code=PeerUnreachable.exit_code).stderr
        bank.run("log", "ls", code=InvalidArgument.exit_code)


def test_call_to_replicas_that_were_all_killed_says_so_at_once(tmp_path: Path) -> None:
    with Bank(tmp_path, replicas=1) as bank:
        bank.up()
        for pid in bank.supervisors().values():
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: "unreachable" in bank.run("status", code=DOWN).stdout, "its end")
        done = bank.run("call", "deposit", "-k", "x", "--timeout", "3600", code=PeerUnreachable.exit_code)
        assert "deathless up service.yaml" in done.stderr


def test_token_opens_the_ports_and_a_wrong_one_does_not(tmp_path: Path) -> None:
    with Bank(tmp_path, replicas=1, more="  tokenFile: token\n") as bank:
        (bank.folder / "token").write_text("0123456789abcdef\n")
        bank.up()
        assert bank.run("call", "deposit", "-k", "a", "-a", "amount=1").stdout == "1\n"
        (bank.folder / "token").write_text("another token of the right length\n")
        assert "error DL3010" in bank.run("status", code=Unauthorized.exit_code).stderr
        assert (bank.directory / "replicas" / "r0" / "config.json").stat().st_mode & 0o077 == 0
