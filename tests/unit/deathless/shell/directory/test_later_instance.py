"""An instance that finds a later one asks whether it runs; on the volume, which both have."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from deathless.base.errors import OtherSupervisor
from deathless.shell.directory import later_instance
from deathless.shell.directory.instance import take_generation
from deathless.shell.directory.later_instance import answer, later_than, take_generation_after


def taken(folder: Path, *names: str) -> None:
    for name in names:
        take_generation(folder, "r0", name)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("instance."))


def test_former_instance_that_nobody_answers_is_the_later_one_from_there_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A control plane that was put back to an older state brings former pods back, and their replacements end."""
    monkeypatch.setattr(later_instance, "UNANSWERED_S", 0.2)
    taken(tmp_path, "a", "b", "c")
    assert asyncio.run(take_generation_after(tmp_path, "r0", "a")) == 4
    assert (later_than(tmp_path, "a"), later_than(tmp_path, "c")) == (None, "a")
    assert files(tmp_path) == []
    assert asyncio.run(take_generation_after(tmp_path, "r0", "a")) == 4, "it keeps the number when it starts again"
    assert asyncio.run(take_generation_after(tmp_path, "r0", "d")) == 5


def test_former_instance_ends_at_once_while_the_later_one_lives(tmp_path: Path) -> None:
    taken(tmp_path, "a", "b")

    async def main() -> None:
        former = asyncio.ensure_future(take_generation_after(tmp_path, "r0", "a"))
        while not former.done():
            answer(tmp_path, "b")
            await asyncio.sleep(0)
        with pytest.raises(OtherSupervisor, match="instance b"):
            former.result()

    asyncio.run(main())
    assert files(tmp_path) == []


def test_only_the_latest_instance_answers_others(tmp_path: Path) -> None:
    taken(tmp_path, "a", "b", "c")
    (tmp_path / "asks.a").touch()
    (tmp_path / "asks.c").touch()
    answer(tmp_path, "b")  # it was replaced itself
    answer(tmp_path, "a")
    assert files(tmp_path) == ["asks.a", "asks.c"]
    answer(tmp_path, "c")
    assert files(tmp_path) == ["asks.c", "denied.a"]


def test_where_one_may_run_at_a_time_there_is_no_later_one(tmp_path: Path) -> None:
    assert asyncio.run(take_generation_after(tmp_path, "r0", "")) == 0
    assert later_than(tmp_path, "") is None
    assert later_than(tmp_path / "gone", "a") is None
