"""The former code's process, a real one: what it is told, what it gives, and what becomes of whoever waits for it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
import pytest
from tests.unit.deathless.shell.upgrade_bench import (
    LIMITS,
    OUTSIDE,
    SEED,
    TEXT,
    Former,
    code_of_before,
    former_code,
    later_code,
    migrated,
    new_code,
    process_of,
    tried,
)

from deathless.base.errors import DeathlessError, UpgradeCalledOff, UpgradeRefused
from deathless.codec.snapshot import Begun, Since, Snapshot
from deathless.engine.shard.assembly import open_shard
from deathless.execution.ready import Ready
from deathless.execution.snapshot_migration import Migrated
from deathless.shell.upgrade import former as former_module
from deathless.shell.upgrade.former import FormerProcess
from deathless.shell.upgrade.packets import GIVES_CHANGES, Kind, LoweredThere, packet

__all__ = ["former_code", "later_code"]


def test_the_new_code_goes_on_with_what_the_former_code_holds(former_code: Former) -> None:
    async def work(former: FormerProcess) -> None:
        for frame in (former_code.frame(), former_code.frame(3, 4)):
            former.apply(frame)
        given = await migrated(former)
        assert isinstance(given, Snapshot)
        held = former_code.snapshot()
        assert (given.lsn, given.chain, given.sessions) == (held.lsn, held.chain, held.sessions)
        shard = open_shard(new_code(), LIMITS, SEED)
        shard.restore(given)
        assert given.state == {b"ann": b"\x81\xa5cents\xcd\x02\xbc"}
        while former.stands < held.lsn:  # noqa: ASYNC110  gives way, does not sleep
            await asyncio.sleep(0)
        assert former.problem is None

    former_code.run(former_code.process(), work)


def test_it_begins_with_a_checkpoint_and_is_asked_several_times_in_a_row(former_code: Former) -> None:
    former_code.frame()
    former_code.frame(5)
    snapshot = former_code.checkpoint()

    async def work(former: FormerProcess) -> None:
        former.restore(snapshot)
        first, second = asyncio.create_task(tried(former)), asyncio.create_task(tried(former))
        await asyncio.sleep(0)
        former.apply(former_code.frame(6))
        third = await tried(former)
        found = [await first, await second, third]
        made = [each for each in found if isinstance(each, Migrated)]
        assert len(made) == 3, found
        assert [each.misfits for each in made] == [[], [], []]
        assert [each.keys for each in made] == [1, 1, 1]
        assert made[-1].snapshot.lsn == snapshot.lsn + 1
        assert made[0].snapshot.lsn <= made[1].snapshot.lsn <= made[2].snapshot.lsn

    former_code.run(former_code.process(), work)


def test_behind_a_trial_only_what_changed_since_is_given_and_the_states_were_written_ahead(former_code: Former) -> None:
    begun = Begun(100, 2, 1, bytes(16))
    written: list[dict[bytes, bytes]] = []

    def write_ahead(state: Mapping[bytes, bytes], done: Callable[[Begun | None], None]) -> None:
        written.append(dict(state))
        done(begun)

    async def work(former: FormerProcess) -> None:
        former.write_ahead = write_ahead
        former.apply(former_code.frame())
        former.apply(former_code.frame(3, key=b"ann"))
        former.apply(former_code.frame(5, key=b"bob"))
        tried_out = await tried(former)
        assert isinstance(tried_out, Migrated)
        assert written == [{b"ann": b"\x81\xa5cents\xcd\x01\x2c", b"bob": b"\x81\xa5cents\xcd\x01\xf4"}]
        former.apply(former_code.frame(4, key=b"bob"))
        former.apply(former_code.frame(2, key=b"zoe"))
        for _ in range(2):  # one that came to nothing, and another one
            given = await migrated(former)
            assert isinstance(given, Snapshot), given
            assert given.lsn == former_code.snapshot().lsn
            bob, zoe = b"\x81\xa5cents\xcd\x03\x84", b"\x81\xa5cents\xcc\xc8"
            assert given.state == written[0] | {b"bob": bob, b"zoe": zoe}
            assert given.since == Since(begun, {b"bob": bob, b"zoe": zoe}, [])
        again = await tried(former)
        assert isinstance(again, Migrated)
        assert written[1:] == [again.snapshot.state], "a trial prepares anew"

    former_code.run(former_code.process(), work)


def test_what_a_turn_may_not_do_is_refused_there_as_in_a_replica(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    code = Former(tmp_path, TEXT + OUTSIDE.format(path=outside))

    async def work(former: FormerProcess) -> None:
        for frame in (code.frame(), code.frame(waits=True)):
            former.apply(frame)
        outside.unlink()
        assert "lsn 2" in str(await tried(former))

    code.run(code.process(), work)
    assert not outside.exists()


@pytest.mark.parametrize("can_write", [True, False])
def test_what_was_written_ahead_is_made_ready_ahead_as_well_under_its_name(
    former_code: Former, *, can_write: bool
) -> None:
    begun, made = Begun(1, 1, 1, b"name" * 4), list[object]()

    def make_ready(ready: Ready) -> Iterator[None]:
        made.append(ready.name)
        yield
        made.append("a step")
        yield

    async def work(former: FormerProcess) -> None:
        former.write_ahead = lambda _, done: done(begun if can_write else None)
        former.make_ready = make_ready
        former.apply(former_code.frame())
        former.apply(former_code.frame(3))
        for _ in range(2):
            assert isinstance(await tried(former), Migrated)
        assert made == ([begun.digest, "a step"] * 2 if can_write else [])
        given = await migrated(former)
        assert isinstance(given, Snapshot), given
        assert len(made) == (4 if can_write else 0), "at the cut nothing is"

    former_code.run(former_code.process(), work)


@pytest.mark.parametrize("can_write", [False, True])
def test_states_that_could_not_be_written_ahead_are_migrated_ahead_all_the_same(
    former_code: Former, *, can_write: bool
) -> None:
    async def work(former: FormerProcess) -> None:
        if can_write:
            former.write_ahead = lambda _, done: done(None)
        former.apply(former_code.frame())
        former.apply(former_code.frame(3))
        assert isinstance(await tried(former), Migrated)
        former.apply(former_code.frame(4))
        given = await migrated(former)
        assert isinstance(given, Snapshot), given
        assert (given.state, given.since) == ({b"ann": b"\x81\xa5cents\xcd\x02\xbc"}, None)

    former_code.run(former_code.process(), work)


def test_process_of_a_release_that_gives_no_changes_gives_everything(
    former_code: Former, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(former_module, "GIVES_CHANGES", b"another word")

    async def work(former: FormerProcess) -> None:
        former.write_ahead = lambda _, done: done(Begun(1, 1, 1, bytes(16)))
        former.apply(former_code.frame())
        former.apply(former_code.frame(3))
        assert isinstance(await tried(former), Migrated)
        given = await migrated(former)
        assert isinstance(given, Snapshot), given
        assert given.since is None

    former_code.run(former_code.process(), work)


def test_what_does_not_fit_is_refused_by_name_and_it_goes_on(former_code: Former) -> None:
    async def work(former: FormerProcess) -> None:
        former.apply(former_code.frame())
        former.apply(former_code.frame(1))
        refused = await migrated(former)
        assert isinstance(refused, UpgradeRefused)
        assert "FieldDropped: Purse.total" in refused.message
        looked = await tried(former)
        assert isinstance(looked, Migrated)
        assert [each.word for each in looked.misfits] == ["FieldDropped"]
        assert former.problem is None

    former_code.run(former_code.process(new_code(migrates=False)), work)


def test_on_the_way_back_the_code_that_serves_makes_the_older_codes_state(later_code: Former) -> None:
    async def work(former: FormerProcess) -> None:
        for frame in (later_code.frame(), later_code.frame(3, 4)):
            former.apply(frame)
        given = await migrated(former)
        assert isinstance(given, Snapshot), given
        held = later_code.snapshot()
        assert held.state == {b"ann": b"\x81\xa5cents\xcd\x02\xbc"}
        assert (given.lsn, given.chain, given.sessions) == (held.lsn, held.chain, held.sessions)
        assert given.state == {b"ann": b"\x81\xa5total\x07"}
        open_shard(code_of_before(), LIMITS, SEED).restore(given)
        looked = await tried(former)
        assert isinstance(looked, Migrated)
        assert (looked.compatible, looked.keys) == (False, 1)

    later_code.run(later_code.process(code_of_before()), work)


def test_what_can_not_go_back_is_refused_by_name_and_it_goes_on(later_code: Former) -> None:
    async def work(former: FormerProcess) -> None:
        for frame in (later_code.frame(), later_code.frame(-1)):
            former.apply(frame)
        refused = await migrated(former)
        assert isinstance(refused, UpgradeRefused)
        assert "MigrationRaised: key ann: ValueError: it owes, 1 of 1 key" in refused.message
        former.apply(later_code.frame(2))
        assert isinstance(await migrated(former), Snapshot)

    later_code.run(later_code.process(code_of_before()), work)


def test_on_the_way_back_too_only_what_changed_since_the_trial_is_made_at_the_cut(
    later_code: Former, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = Begun(100, 2, 1, bytes(16))
    written: list[dict[bytes, bytes]] = []
    sent: list[int] = []

    def write_ahead(state: Mapping[bytes, bytes], done: Callable[[Begun | None], None]) -> None:
        written.append(dict(state))
        done(begun)

    async def work(former: FormerProcess) -> None:
        send = former._send

        def noted(kind: Kind, body: bytes) -> None:
            sent.append(kind)
            send(kind, body)

        former.write_ahead = write_ahead
        monkeypatch.setattr(former, "_send", noted)
        for frame in (later_code.frame(), later_code.frame(3), later_code.frame(5, key=b"bob")):
            former.apply(frame)
        assert isinstance(await tried(former), Migrated)
        assert written == [{b"ann": b"\x81\xa5total\x03", b"bob": b"\x81\xa5total\x05"}]
        for frame in (later_code.frame(4, key=b"bob"), later_code.frame(2, key=b"zoe")):
            former.apply(frame)
        given = await migrated(former)
        assert isinstance(given, Snapshot), given
        changed = {b"bob": b"\x81\xa5total\x09", b"zoe": b"\x81\xa5total\x02"}
        assert (given.lsn, given.since) == (later_code.snapshot().lsn, Since(begun, changed, []))
        assert given.state == written[0] | changed
        open_shard(code_of_before(), LIMITS, SEED).restore(given)
        former.apply(later_code.frame(-9, key=b"eve"))
        refused = await migrated(former)
        assert isinstance(refused, UpgradeRefused)
        assert "MigrationRaised: key eve: ValueError: it owes" in refused.message, "it came behind the trial"
        assert [kind for kind in sent if kind != Kind.APPLY] == [Kind.BACK, Kind.BACK_CHANGES, Kind.BACK_CHANGES]

    later_code.run(later_code.process(code_of_before()), work)


def test_process_of_a_release_that_lowers_no_changes_lowers_everything(
    later_code: Former, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Older(LoweredThere, array_like=True, frozen=True):
        def __post_init__(self) -> None:
            msgspec.structs.force_setattr(self, "gives_changes", False)

    monkeypatch.setattr(former_module, "LoweredThere", Older)

    async def work(former: FormerProcess) -> None:
        former.write_ahead = lambda _, done: done(Begun(1, 1, 1, bytes(16)))
        for frame in (later_code.frame(), later_code.frame(3)):
            former.apply(frame)
        assert isinstance(await tried(former), Migrated)
        given = await migrated(former)
        assert isinstance(given, Snapshot), given
        assert (given.since, given.state) == (None, {b"ann": b"\x81\xa5total\x03"})

    later_code.run(later_code.process(code_of_before()), work)


def test_a_process_of_a_release_that_knows_no_way_back_says_so(later_code: Former) -> None:
    former = later_code.process(code_of_before())
    former.data_received(packet(Kind.FAILED, msgspec.msgpack.encode(("DL3003", "packet 8 is not known"))))
    assert isinstance(former.problem, UpgradeCalledOff)
    assert "knows no way back" in former.problem.message


def test_a_process_that_is_killed_answers_whoever_waits_and_whoever_asks_later(former_code: Former) -> None:
    async def work(former: FormerProcess) -> None:
        process = process_of(former)
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        waiting = [asyncio.create_task(tried(former)) for _ in range(3)]
        await asyncio.sleep(0)
        process.kill()
        found = [await each for each in waiting]
        assert all(isinstance(each, UpgradeCalledOff) for each in found)
        assert "ended" in str(former.problem)
        assert isinstance(await migrated(former), UpgradeCalledOff)
        former.apply(former_code.frame())
        assert former.waiting_bytes == 0, "nobody is told any more"

    former_code.run(former_code.process(), work)


async def problem_of(former: FormerProcess) -> DeathlessError:
    while former.problem is None:  # noqa: ASYNC110  gives way, does not sleep
        await asyncio.sleep(0)
    return former.problem


def test_a_broken_invariant_is_told_before_it_ends(former_code: Former) -> None:
    frame = former_code.frame()
    lied = former_code.frame(1)._replace(payload=former_code.frame(2).payload)

    async def work(former: FormerProcess) -> None:
        former.apply(frame)
        former.apply(lied)
        problem = await problem_of(former)
        assert (problem.code, "seq 2 is not the next" in problem.message) == ("DL9001", True), problem
        assert await tried(former) is problem

    former_code.run(former_code.process(), work)


def test_a_process_that_lags_without_an_end_is_given_up(former_code: Former, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(former_module, "WAITING_BYTES_MAX", -1)
    frame = former_code.frame()

    async def work(former: FormerProcess) -> None:
        former.apply(frame)
        problem = former.problem
        assert isinstance(problem, UpgradeCalledOff)
        assert "MiB of the log to read yet" in problem.message
        assert await tried(former) is problem

    former_code.run(former_code.process(), work)


def test_code_that_computes_something_else_is_found_by_its_digests(former_code: Former) -> None:
    text = (former_code.tmp_path / "log" / "code" / former_code.upgrade.code / "files" / "purse_service.py").read_text()
    other_folder = former_code.tmp_path / "other"
    other_folder.mkdir()
    other = Former(other_folder, text.replace("RATE = 1", "RATE = 2"))

    async def work(former: FormerProcess) -> None:
        former.apply(other.frame())
        former.apply(other.frame(1))
        problem = await problem_of(former)
        assert (problem.code, "handler 'add' for key 'ann'" in problem.message) == ("DL4008", True), problem

    former_code.run(former_code.process(), work)


def test_a_checkpoint_that_is_gone_is_told(former_code: Former) -> None:
    former_code.frame()
    snapshot = former_code.snapshot()

    async def work(former: FormerProcess) -> None:
        former.restore(snapshot)
        assert "the checkpoint at lsn 1 is gone" in str(await problem_of(former))

    former_code.run(former_code.process(), work)


def test_code_that_is_not_what_wrote_the_log_runs_nothing(former_code: Former) -> None:
    async def work(former: FormerProcess) -> None:
        assert "is not what wrote the log" in str(await problem_of(former))

    former_code.run(former_code.process(fingerprint=b"x" * 16), work)


@pytest.mark.parametrize("interpreter", ["/nowhere/python3", "/"])
def test_an_interpreter_that_is_missing_is_told_and_leaves_nothing(former_code: Former, interpreter: str) -> None:
    former = former_code.process(interpreter=interpreter)

    async def main() -> None:
        with pytest.raises(UpgradeCalledOff, match="can't be started"):
            await former.start()
        former.apply(former_code.frame())
        former.close()

    asyncio.run(main())
    assert list(former_code.scratch.iterdir()) == []


def test_an_interpreter_that_is_no_such_program_is_told(former_code: Former) -> None:
    async def work(former: FormerProcess) -> None:
        assert isinstance(await tried(former), UpgradeCalledOff)

    former_code.run(former_code.process(interpreter="/bin/true"), work)


def test_whatever_migrating_meets_whoever_waits_is_answered(former_code: Former) -> None:
    def look(_: Snapshot) -> Migrated:
        raise MemoryError

    async def work(former: FormerProcess) -> None:
        for _ in range(2):
            found = await tried(former)
            assert isinstance(found, UpgradeCalledOff)
            assert "can't be migrated" in found.message

    former_code.run(former_code.process(look=look), work)


def test_what_was_given_to_workers_that_were_killed_is_taken_away(former_code: Former) -> None:
    left, lives = former_code.scratch / "upgrade.4194305.former", former_code.scratch / "upgrade.1.former"
    left.touch()
    lives.touch()

    async def work(former: FormerProcess) -> None:
        assert (left.exists(), lives.exists()) == (False, True)
        lives.unlink()
        assert isinstance(await tried(former), Migrated)

    former_code.run(former_code.process(), work)


def test_what_was_given_and_is_gone_is_told(former_code: Former) -> None:
    async def work(former: FormerProcess) -> None:
        former.data_received(packet(Kind.GIVEN, bytes(24)))
        waiting = asyncio.create_task(tried(former))
        await asyncio.sleep(0)
        found = await waiting
        assert isinstance(found, (Migrated, UpgradeCalledOff))

    former_code.run(former_code.process(), work)


def test_bytes_that_are_no_packets_end_the_line(former_code: Former) -> None:
    async def work(former: FormerProcess) -> None:
        former.data_received(packet(Kind.FAILED, b"\xc1"))
        assert isinstance(await tried(former), DeathlessError)
        assert "can't be read" in str(former.problem)

    former_code.run(former_code.process(), work)


def test_state_that_nobody_asked_for_is_read_and_prepares_nothing(former_code: Former) -> None:
    """Whoever had asked was answered meanwhile: the lag was too large, for example."""

    async def work(former: FormerProcess) -> None:
        former.apply(former_code.frame())
        assert isinstance(await tried(former), Migrated)
        former.data_received(packet(Kind.GIVEN, bytes(24) + GIVES_CHANGES))
        looked = await tried(former)
        assert isinstance(looked, Migrated | UpgradeCalledOff)

    former_code.run(former_code.process(), work)
