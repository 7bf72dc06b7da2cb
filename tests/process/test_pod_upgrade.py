"""An upgrade in pods: upgraders of another image, the former image beside each, and a pod that drives.

A kubelet's part is the test's: it starts containers again that were killed.
"""

from __future__ import annotations

from pathlib import Path

from pod_bank import NEW, OLD, PodBank
from replica_set import DEADLINE_S, wait_for
from upgraded_bank import Callers, version_1, version_1_again, version_2

from deathless.base.errors import UpgradeCalledOff, UpgradeRefused

PAIR = ("r0", "r1")
SLOW = 3_000_000  # rounds of the migration of each key: the lock is held meanwhile
MORE = "\n\n@bank.query\ndef count(account: Account) -> int:\n    return len(account.tags)\n"


def superseded(bank: PodBank, *names: str) -> None:
    """Wait until pods of the former image stay up, idle, not ready, and say why."""
    for name in names:
        bank.wait_probe(name, 503, "DL4009")
        assert bank.probe(name, "livez")[0] == 200
        view = bank.of(name)
        assert view is not None
        assert (view.state, view.condition, bank.runs(name)) == ("dead", "DL4009", True)
        assert bank.word(name).read_text().startswith("DL4009 ")


def test_new_image_serves_under_load_and_pods_of_the_former_one_stay_up_idle(tmp_path: Path) -> None:
    with PodBank(tmp_path) as bank:
        with Callers(bank) as callers:
            bank.roll_out("v2", version_2())
            for name in NEW:
                bank.wait_probe(name, 503, "upgrader")
            epoch = bank.lock_epoch()
            prepared = bank.driven("v2", "--prepare-only")
            callers.wait_more()
            assert (bank.head().generation, bank.lock_epoch()) == (1, epoch), "nothing was handed over"
            outcome = bank.driven("v2")
            callers.wait_more()
            for name in NEW:
                bank.wait_probe(name, 200)
            superseded(bank, *OLD)
            epoch = bank.lock_epoch()
            bank.kill("r0")
            bank.start_again("r0")
            superseded(bank, "r0")
            callers.wait_more()
        assert (bank.head().generation, bank.lock_epoch()) == (2, epoch), "no pod of before takes the lock"
        callers.check(bank.accounts(), 100)
        assert outcome["generation"] == 2
        assert (outcome["primary"], outcome["fromVersion"], outcome["toVersion"]) == ("r3", 1, 2)
        assert outcome["fingerprint"] == bank.head().fingerprint.hex()
        told = {"prepared": True, "fingerprint": outcome["fingerprint"], "fromVersion": 1, "toVersion": 2}
        assert prepared == told
        again = bank.driven("v2", "--prepare-only")
        assert again["generation"] == 2, "it serves already"
        assert 0 < outcome["unavailableS"] < DEADLINE_S
        again = bank.driven("v2")
        assert again == {**outcome, "unavailableS": 0.0, "fromVersion": 0}, "it serves already"


def test_container_that_starts_again_is_an_upgrader_before_the_commit_and_a_replica_behind_it(tmp_path: Path) -> None:
    with PodBank(tmp_path, replicas=2) as bank:
        with Callers(bank) as callers:
            bank.roll_out("v2", version_2())
            for moment in ("starting", "following"):
                if moment == "following":
                    bank.wait_upgraders()
                bank.kill("r3")
                bank.start_again("r3")
            bank.wait_upgraders()
            bank.driven("v2")
            for name in NEW:
                bank.kill(name)
                bank.start_again(name)
                bank.wait_roles(1, *NEW)
                callers.wait_more()
            for name in NEW:
                bank.kill(f"{name} former")
            callers.wait_more()
        callers.check(bank.accounts(), 100)


def test_former_image_that_is_killed_is_started_again_and_the_upgrade_is_made(tmp_path: Path) -> None:
    with PodBank(tmp_path, replicas=2) as bank:
        with Callers(bank) as callers:
            bank.roll_out("v2", version_2())
            bank.wait_upgraders()
            for name in NEW:
                bank.kill(f"{name} former")
            bank.drive("v2")
            callers.wait_more()
            for name in NEW:
                bank.start_former(name)
            assert bank.containers["drive"].wait(2 * DEADLINE_S) == 0, bank.log("drive")
            callers.wait_more()
        assert bank.head().generation == 2
        callers.check(bank.accounts(), 100)


def test_former_image_that_is_killed_in_the_cut_leaves_the_former_code_that_serves(tmp_path: Path) -> None:
    with PodBank(tmp_path, replicas=2) as bank:
        with Callers(bank) as callers:
            slow = tmp_path / "slow"
            slow.touch()
            bank.roll_out("v2", version_2(work=SLOW, slow=slow))
            bank.drive("v2")
            bank.until_driven("cutting")
            for name in NEW:
                bank.kill(f"{name} former")
            found = bank.containers["drive"].wait(2 * DEADLINE_S)
            assert found in (0, UpgradeCalledOff.exit_code), "it came too late, or the upgrade was called off"
            if found:
                assert bank.word("drive").read_text().startswith("DL1022 ")
                assert bank.head().generation == 1
            callers.wait_more()
            for name in NEW:
                bank.start_former(name)
            slow.unlink()
            bank.driven("v2")
            callers.wait_more()
        callers.check(bank.accounts(), 100)


def test_upgrader_that_dies_right_behind_the_commit_is_followed_by_the_other_one(tmp_path: Path) -> None:
    with PodBank(tmp_path, replicas=2) as bank:
        with Callers(bank) as callers:
            bank.roll_out("v2", version_2())
            bank.drive("v2")
            bank.until_driven("checking")
            wait_for(lambda: bank.head().generation == 2 or not bank.runs("drive"), "the commit", bank.told)
            bank.kill("r3")
            callers.wait_more()
            assert bank.containers["drive"].wait(2 * DEADLINE_S) == 0, bank.log("drive")
            bank.start_again("r3")
            bank.wait_roles(1, *NEW)
            callers.wait_more()
        assert bank.head().generation == 2
        superseded(bank, *PAIR)
        callers.check(bank.accounts(), 100)


def test_pod_that_drives_is_killed_at_each_step_and_the_next_one_goes_on(tmp_path: Path) -> None:
    with PodBank(tmp_path, replicas=2) as bank:
        with Callers(bank) as callers:
            bank.image("v2", version_2())
            bank.drive("v2")
            bank.until_driven("preparing")
            bank.kill("drive")
            for name in NEW:
                bank.start_pod(name, "v2", "v1")
            for phase in ("ready", "checking", "cutting"):
                (tmp_path / "drive.log").unlink()
                bank.drive("v2")
                bank.until_driven(phase)
                bank.kill("drive")
                callers.wait_more()
            assert bank.driven("v2")["generation"] == 2
            callers.wait_more()
        callers.check(bank.accounts(), 100)


def test_one_that_is_told_to_stop_says_that_it_was_called_off(tmp_path: Path) -> None:
    with PodBank(tmp_path, replicas=1) as bank:
        bank.image("v2", version_2())
        driving = bank.drive("v2")
        bank.until_driven("preparing")
        driving.terminate()
        assert driving.wait(DEADLINE_S) == UpgradeCalledOff.exit_code
        assert bank.word("drive").read_text().startswith("DL1022 it was told to stop")
        said = bank.drive_to("v2", "--timeout", "1", code=UpgradeCalledOff.exit_code)
        assert said.startswith("DL1022 the upgraders are not ready after ")
        assert "r3 is not there yet" in said


def test_what_does_not_fit_or_is_not_compatible_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with PodBank(tmp_path, replicas=2) as bank:
        with Callers(bank) as callers:
            before = bank.head()
            bank.roll_out("misfit", version_2(migration=False), "r3")
            said = bank.drive_to("misfit", code=UpgradeRefused.exit_code, names=("r3",))
            assert said.startswith("DL1023 FieldDropped: Account.balance (int) of version 1 is not in version 2")
            bank.roll_out("v2", version_2(), "r4")
            said = bank.drive_to("v2", "--only-compatible", code=UpgradeRefused.exit_code, names=("r4",))
            assert said.startswith("DL1023 the new code fits, but is not compatible: ")
            assert "kubectl deathless upgrade bank" in said
            callers.wait_more()
            assert bank.head() == before
            bank.driven("v2", names=("r4",))
            callers.wait_more()
        callers.check(bank.accounts(), 100)


def test_compatible_code_needs_no_word_and_the_way_back_is_another_upgrade(tmp_path: Path) -> None:
    with PodBank(tmp_path, replicas=2) as bank:
        with Callers(bank) as callers:
            bank.roll_out("more", version_1(MORE))
            first = bank.driven("more", "--only-compatible")
            assert (first["generation"], first["fromVersion"], first["toVersion"]) == (2, 1, 1)
            bank.wait_roles(1, *NEW)
            for name in PAIR:  # as they are rolled: their image is the new one
                bank.kill(name)
                bank.start_pod(name, "more")
            bank.wait_roles(1, *NEW, *PAIR)
            callers.wait_more()
            back = ("r5", "r6")
            for name in back:
                bank.start_pod(name, "v1", "more")
            assert "query count" in bank.drive_to("v1", code=UpgradeRefused.exit_code, names=back)
        callers.check(bank.accounts(), 1)


def test_code_that_answers_otherwise_needs_a_word_or_a_declaration(tmp_path: Path) -> None:
    odd = version_1().replace("return len(account.tags)\n", "return len(account.tags) + 1\n", 1)
    declared = 'bank.changes(from_=1, changed={"deposit": {"reply": "one more is told"}})\n'
    with PodBank(tmp_path, replicas=2) as bank:
        with Callers(bank) as callers:
            callers.wait_more()
            before = bank.head()
            bank.roll_out("odd", odd, "r3")
            said = bank.drive_to("odd", "--only-compatible", code=UpgradeRefused.exit_code, names=("r3",))
            assert said.startswith("DL1023 AnswerDiffers: ")
            assert "gave another state or reply" in said
            assert "here it replies" in said
            assert bank.head() == before
            callers.wait_more()
        callers.check(bank.accounts(), 1)
        fatal = version_1().replace("    account.tags.append(tag)\n", "    __import__('ctypes').string_at(0)\n", 1)
        bank.roll_out("fatal", fatal, "r5")
        said = bank.drive_to("fatal", "--only-compatible", code=UpgradeRefused.exit_code, names=("r5",))
        assert said.startswith("DL1023 ProcessEnds: "), said
        bank.roll_out("declared", odd + declared, "r4")
        assert bank.driven("declared", "--only-compatible", names=("r4",))["generation"] == 2
        assert "deposit does what is declared as changed (reply: one more is told)" in bank.log("drive")


def test_way_back_with_a_migration_is_made_by_pods_of_a_third_image(tmp_path: Path) -> None:
    with PodBank(tmp_path, replicas=1) as bank:
        with Callers(bank) as callers:
            bank.roll_out("v2", version_2(), "r1")
            bank.driven("v2", names=("r1",))
            bank.kill("r0")
            bank.roll_out("v3", version_1_again(), "r2", former="v2")
            outcome = bank.driven("v3", names=("r2",))
            callers.wait_more()
        assert (outcome["generation"], outcome["fromVersion"], outcome["toVersion"]) == (3, 2, 3)
        callers.check(bank.accounts(), 1)


def test_way_back_is_made_by_pods_of_the_first_image_and_lowered_by_the_one_that_serves(tmp_path: Path) -> None:
    with PodBank(tmp_path, replicas=1) as bank:
        with Callers(bank) as callers:
            bank.roll_out("v2", version_2(back=True), "r1")
            bank.driven("v2", names=("r1",))
            callers.wait_more()
            bank.kill("r0")
            bank.start_pod("r2", "v1", "v2")
            outcome = bank.driven("v1", names=("r2",))
            callers.wait_more()
        assert (outcome["generation"], outcome["fromVersion"], outcome["toVersion"]) == (3, 2, 1)
        callers.check(bank.accounts(), 1)


def test_without_a_recorded_interface_nothing_begins_that_should_be_an_upgrader(tmp_path: Path) -> None:
    with PodBank(tmp_path, replicas=1) as bank:
        for path in (bank.directory / "code").glob("*.interface.json"):
            path.unlink()
        bank.roll_out("v2", version_2(), "r3")
        assert bank.containers["r3"].wait(DEADLINE_S) == UpgradeRefused.exit_code
        assert "no interface is recorded" in bank.word("r3").read_text()
        said = bank.drive_to("v2", code=UpgradeRefused.exit_code, names=("r3",))
        assert "no interface is recorded" in said
        assert bank.of("r3") is None
