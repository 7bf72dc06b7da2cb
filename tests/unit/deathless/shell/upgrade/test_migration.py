"""What an upgrader makes of all that the former code held, and how it says what does not fit."""

from __future__ import annotations

import pytest
from tests.unit.deathless.shell.upgrade_bench import SEED, Former, code_of_before, former_code, later_code, new_code

from deathless.base.errors import UpgradeRefused
from deathless.base.safeguards import Safeguards
from deathless.execution.interface.interface import decode_interface
from deathless.execution.interface.misfit import Misfit
from deathless.shell.upgrade.migration import SHOWN_MAX, Migration, told

__all__ = ["former_code", "later_code"]


def test_all_is_migrated_by_the_interface_that_is_recorded(former_code: Former) -> None:
    former_code.frame()
    former_code.frame(3)
    snapshot = former_code.snapshot()
    migration = Migration(new_code(), former_code.config, former_code.upgrade, SEED)
    found = migration.look(snapshot)
    assert (found.misfits, found.keys) == ([], 1)
    assert found.snapshot.state == {b"ann": b"\x81\xa5cents\xcd\x01\x2c"}
    assert migration.look(snapshot).snapshot == found.snapshot, "the same again"


def test_safeguard_an_older_version_asks_the_code_that_serves_and_reads_nothing_of_it_itself(
    later_code: Former,
) -> None:
    later_code.frame()
    later_code.frame(3)
    made = {
        on: Migration(
            code_of_before(), later_code.config, later_code.upgrade, SEED, Safeguards(lower_on_the_way_back=on)
        )
        for on in (True, False)
    }
    back = made[True].back
    assert back is not None
    assert decode_interface(back.interface).version == 1
    assert (back.time_us, back.upgrade) == (7, b"\xab" * 16)
    assert made[False].back is None
    for migration in made.values():
        assert [each.word for each in migration.look(later_code.snapshot()).misfits] == ["FieldDropped"]


def test_a_later_version_asks_for_what_there_is(former_code: Former) -> None:
    assert Migration(new_code(), former_code.config, former_code.upgrade, SEED).back is None


def test_without_a_record_nobody_knows_what_the_former_code_was(former_code: Former) -> None:
    for path in (former_code.directory / "code").glob("*.interface.json"):
        path.unlink()
    with pytest.raises(UpgradeRefused, match="no interface is recorded"):
        Migration(new_code(), former_code.config, former_code.upgrade, SEED).look(former_code.snapshot())


def test_a_refusal_names_some_and_counts_the_rest() -> None:
    misfits = [Misfit("HandlerGone", f"h{number}", f"h{number} is gone") for number in range(SHOWN_MAX + 2)]
    assert told(misfits[:2]) == "HandlerGone: h0 is gone; HandlerGone: h1 is gone"
    assert told(misfits).endswith("HandlerGone: h7 is gone; and 2 more")
