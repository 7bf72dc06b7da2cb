"""`deathless log`, `replay`, `checkpoint` on a stopped service: every flipped bit is named, every lsn reached."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_tool import PROGRAM, Bank
from tests.encoded import encode_cancel

from deathless.base.errors import CopiedDirectory, CorruptFrame, Diverged, InvalidArgument, UpgradeRequired
from deathless.cli.look.log import _describe
from deathless.codec.peer_messages import (
    Order,
    Reference,
    Request,
    Trim,
    encode_record,
    encode_request,
    encode_response,
)

DAMAGED = CorruptFrame.exit_code


@pytest.fixture(scope="module", name="original")
def stopped_bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    """A bank with two epochs of log and a checkpoint, stopped in order."""
    with Bank(tmp_path_factory.mktemp("bank"), replicas=1) as bank:
        bank.up()
        for amount in (1, 2, 3):
            bank.run("call", "deposit", "-k", "alice", "-a", f"amount={amount}")
        bank.down()
        bank.up()
        bank.run("call", "transfer", "-a", "source=alice", "-a", "target=bob", "-a", "amount=4")
        bank.run("checkpoint", "take")
        bank.run("call", "deposit", "-k", "bob", "-a", "amount=10")
        bank.down()
        yield bank


@pytest.fixture(name="bank")
def copied_bank(original: Bank, tmp_path: Path) -> Bank:
    """A copy to break."""
    shutil.copytree(original.folder, tmp_path / "bank")
    bank = Bank(tmp_path / "bank", replicas=1)
    assert bank.directory.is_dir()
    return bank


def frames(bank: Bank, *kinds: str) -> list[dict[str, Any]]:
    """The frames of the log, of these kinds alone."""
    lines = bank.run("log", "show", "--frames", "--from", "1", "-n", "1000", "--json").stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    return [row for row in rows if row["kind"] in kinds]


def flip(path: Path, offset: int, bit: int = 3) -> None:
    """Turn one bit over."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 1 << bit
    path.write_bytes(data)


def messages(bank: Bank) -> list[dict[str, Any]]:
    """All messages of the log."""
    lines = bank.run("log", "show", "--from", "1", "-n", "1000", "--json").stdout.splitlines()
    return [json.loads(line) for line in lines]


def test_sound_log_is_sound(original: Bank) -> None:
    report = original.json("log", "verify")
    assert report["problems"] == []
    assert report["executedThrough"] == report["lastLsn"] == report["confirmedLsn"]
    assert report["executedFrom"] == 0
    assert len(report["checkpoints"]) >= 1
    assert original.run("log", "verify").stdout.endswith("verdict: sound\n")
    assert original.run("log", "verify", "--quick").stdout.endswith("verdict: sound\n")


@pytest.mark.parametrize("part", ["header", "payload", "last byte", "padding"])
def test_flipped_bit_of_a_data_frame_is_named(bank: Bank, part: str) -> None:
    found = frames(bank, "data")
    for row in (found[0], found[len(found) // 2], found[-1]):
        at = {
            "header": row["offset"] + 17,
            "payload": row["offset"] + 150,
            "last byte": row["offset"] + row["bytes"] - 1,
            "padding": row["offset"] + row["bytes"] + 1,
        }[part]
        path = bank.directory / row["file"]
        flip(path, at)
        report = bank.json("log", "verify", "--quick", code=DAMAGED)
        text = "\n".join(report["problems"])
        assert row["file"] in text
        assert f"lsn {row['firstLsn']}" in text
        assert f"offset {at if part == 'padding' else row['offset']}" in text
        flip(path, at)
    assert bank.json("log", "verify", "--quick")["problems"] == []


@pytest.mark.parametrize("kind", ["cut", "opening", "confirm"])
def test_flipped_bit_of_any_other_frame_is_named(bank: Bank, kind: str) -> None:
    for row in frames(bank, kind):
        path = bank.directory / row["file"]
        flip(path, row["offset"] + 130)
        assert row["file"] in "\n".join(bank.json("log", "verify", "--quick", code=DAMAGED)["problems"])
        flip(path, row["offset"] + 130)


def test_flipped_bit_behind_the_last_frame_is_named(bank: Bank) -> None:
    row = frames(bank, "data", "confirm")[-1]
    end = row["offset"] + (row["bytes"] + 4095) // 4096 * 4096
    flip(bank.directory / row["file"], end + 5000)
    assert f"offset {end}" in "\n".join(bank.json("log", "verify", code=DAMAGED)["problems"])


def test_flipped_bit_of_a_checkpoint_is_named(bank: Bank) -> None:
    for path in sorted((bank.directory / "checkpoints").glob("*.ckpt")):
        for at in (10, path.stat().st_size // 2, path.stat().st_size - 1):
            flip(path, at)
            assert path.name in "\n".join(bank.json("log", "verify", code=DAMAGED)["problems"])
            flip(path, at)


def test_missing_segment_is_named(bank: Bank) -> None:
    path = bank.directory / frames(bank, "data")[-1]["file"]
    path.unlink()
    assert path.name in "\n".join(bank.json("log", "verify", code=DAMAGED)["problems"])
    assert "can't be followed" in bank.run("log", "ls", code=DAMAGED).stdout


def test_missing_beginning_is_named_unless_a_checkpoint_holds_it(bank: Bank) -> None:
    path = bank.directory / frames(bank, "data")[0]["file"]
    path.unlink()
    assert bank.json("log", "verify")["problems"] == []
    for checkpoint in (bank.directory / "checkpoints").glob("*"):
        checkpoint.unlink()
    assert path.name in "\n".join(bank.json("log", "verify", code=DAMAGED)["problems"])


def test_files_are_listed_with_their_place_in_the_chain(original: Bank) -> None:
    listed = original.json("log", "ls")
    assert [each["state"] for each in listed["segments"]] == ["chain", "head"]
    assert listed["segments"][-1]["epoch"] == listed["head"]
    assert "e000000000002.r000000.seg" in original.run("log", "ls").stdout


def test_messages_are_shown_by_lsn_and_key(original: Bank) -> None:
    shown = messages(original)
    assert [each["lsn"] for each in shown] == list(range(1, len(shown) + 1))
    calls = [
        (each["what"], each["key"], each["args"].get("amount")) for each in shown if not each["what"].startswith("(")
    ]
    assert calls == [
        ("deposit", "alice", 1),
        ("deposit", "alice", 2),
        ("deposit", "alice", 3),
        ("transfer", "", 4),
        ("deposit", "bob", 10),
    ]
    last = original.run("log", "show", "-n", "2", "--json").stdout.splitlines()
    assert [f'"lsn":{len(shown) - 1},' in last[0], f'"lsn":{len(shown)},' in last[1]] == [True, True]
    assert original.run("log", "show", "--from", "9999").stdout == "nothing there\n"


def test_state_at_every_lsn_is_reached_from_zero_and_from_the_checkpoint(original: Bank) -> None:
    balance = {"alice": 0, "bob": 0}
    for message in messages(original):
        amount = message["args"].get("amount", 0)
        if message["what"] == "deposit":
            balance[message["key"]] += amount
        elif message["what"] == "transfer":
            balance["alice"] -= amount
            balance["bob"] += amount
        else:
            continue
        for start in ("0", "checkpoint"):
            state = original.json("replay", "--from", start, "--to", str(message["lsn"]))["state"]
            assert {key: state.get(key, {}).get("balance", 0) for key in balance} == balance


def test_diff_shows_what_some_messages_changed(original: Bank) -> None:
    at = next(each["lsn"] for each in messages(original) if each["what"] == "transfer")
    told = original.json("replay", "--from", str(at - 1), "--to", str(at), "--diff")
    assert [(each["key"], each["before"], each["after"]) for each in told["changes"]] == [
        ("alice", {"balance": 6, "deposits": 3}, {"balance": 2, "deposits": 3}),
        ("bob", None, {"balance": 4, "deposits": 0}),
    ]
    text = original.run("replay", "--from", str(at - 1), "--to", str(at), "--diff").stdout
    assert f"2 keys changed between lsn {at - 1} and {at}" in text


def test_replay_from_the_middle_of_a_frame_runs_to_the_end(original: Bank) -> None:
    lsns = [message["lsn"] for message in messages(original)]
    for lsn in lsns[:6]:  # among them first, middle and last ones of frames
        assert original.json("replay", "--from", str(lsn), "--diff")["lsn"] == lsns[-1]


def debugged(bank: Bank, commands: str, *arguments: str) -> str:
    """What a replay in the debugger shows, which is given these commands."""
    program = [*PROGRAM, "replay", "--from", "0", "--pdb", *arguments]
    done = subprocess.run(program, cwd=bank.folder, input=commands, capture_output=True, text=True, check=True)
    return done.stdout


def test_replay_stops_in_the_debugger_where_it_is_asked_to(original: Bank) -> None:
    shown = debugged(original, "p amount\nc\np amount\nc\n", "--break", "deposit", "--if", "amount > 2", "--quiet")
    assert [line.removeprefix("(Pdb) ") for line in shown.splitlines() if line[-2:] in (" 3", "10")] == ["3", "10"]
    assert "no difference" in shown
    third = next(row["lsn"] for row in messages(original) if row["args"] == {"amount": 2})
    shown = debugged(original, "p amount, account.balance\nn\nn\np account.balance\nc\n", "--break", str(third))
    assert f"lsn {third}\n" in shown
    assert "(2, 1)" in shown
    assert "no difference" in shown
    assert "no difference" not in debugged(original, "q\n")


def test_replay_says_what_it_cannot_stop_at(original: Bank) -> None:
    usage = InvalidArgument.exit_code
    assert "no such handler" in original.run("replay", "--pdb", "--break", "deposi", code=usage).stderr
    assert "no expression" in original.run("replay", "--pdb", "--if", "amount >", code=usage).stderr
    assert "add --pdb" in original.run("replay", "--break", "deposit", code=usage).stderr


def test_replay_and_verify_change_nothing(bank: Bank) -> None:
    def content() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted(bank.directory.rglob("*")) if path.is_file()}

    before = content()
    bank.run("replay")
    bank.run("log", "verify")
    bank.run("log", "ls")
    bank.run("checkpoint", "ls")
    bank.run("status", code=CopiedDirectory.exit_code)  # the directory is a copy here, and asks nobody
    assert content() == before


def test_other_code_is_not_run_unless_asked_and_then_its_difference_is_named(bank: Bank) -> None:
    source = bank.folder / "service.py"
    source.write_text(source.read_text().replace("account.balance += amount", "account.balance += amount + 1"))
    assert "error DL4009" in bank.run("replay", code=UpgradeRequired.exit_code).stderr
    report = bank.json("log", "verify")
    assert (report["problems"], report["executedThrough"]) == ([], None)
    assert "nothing was run again" in report["notes"][0]
    done = bank.run("replay", "--any-code", "--from", "0", code=Diverged.exit_code)
    first = next(each["lsn"] for each in messages(bank) if each["what"] == "deposit")
    assert f"lsn {first}: handler 'deposit' for key 'alice'" in done.stderr


def test_other_code_that_gives_the_same_is_no_difference(bank: Bank) -> None:
    source = bank.folder / "service.py"
    source.write_text(source.read_text() + "\nANOTHER = 1\n")
    told = bank.json("replay", "--any-code", "--from", "0")
    assert told["notes"] == ["this code did not write the log"]
    assert told["state"]["bob"]["balance"] == 14


def test_messages_of_peers_and_records_about_them_are_shown_in_words() -> None:
    request = encode_request(Request(41, 2), method=b"pay", key=b"till", args=b"\x81\xa1n\x05")
    assert _describe(request) == {"what": "pay", "key": "till", "args": {"n": 5}, "idempotencyKey": ""}
    for message, what in (
        (encode_response(Reference(41, 2), b"\x00"), "(response)"),
        (encode_cancel(Reference(41, 2)), "(cancel)"),
    ):
        told = _describe(message)
        assert (told["what"], told["args"]) == (what, {"invocation": 41, "operation": 2})
    assert _describe(encode_record(Trim("shop", 0, 12)))["args"] == {"service": "shop", "shard": 0, "through": 12}
    assert _describe(encode_record(Order("kill", 41)))["what"] == "(order)"
