"""Peers that are measured in turns: what a missing or broken one costs, and programs fetched once and whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.groups import waiting
from bench.groups.waiting import PUBLISHED
from bench.peers.table import Missing, Peer, Turns, cached, run
from bench.setting import Setting


def reaches(*values: float) -> Peer:
    """A peer that reaches these, turn by turn."""
    left = list(values)

    async def measure() -> float:
        return left.pop(0)

    return Peer(measure)


def breaks(error: Exception, *, after: int = 0) -> tuple[Peer, list[int]]:
    """A peer that breaks behind some good turns, and a list that has an item for each turn."""
    turns: list[int] = []

    async def measure() -> float:
        turns.append(len(turns))
        if len(turns) > after:
            raise error
        return 7.0

    return Peer(measure), turns


@pytest.mark.asyncio
async def test_peer_has_the_median_of_its_turns(tmp_path: Path) -> None:
    turns = Turns(Setting(tmp_path, quick=True), {"one": reaches(3.0, 1.0, 2.0), "two": reaches(5.0, 5.0, 6.0)})
    for _ in range(3):
        await turns.take()
    assert turns.values() == {"one": 2.0, "two": 5.0}
    assert turns.note() == ""


@pytest.mark.parametrize("error", [Missing("no `npm` here"), ValueError("messages\n  were lost")])
@pytest.mark.asyncio
async def test_peer_that_breaks_says_why_and_costs_the_others_nothing(tmp_path: Path, error: Exception) -> None:
    broken, tried = breaks(error, after=1)
    turns = Turns(Setting(tmp_path, quick=True), {"broken": broken, "one": reaches(3.0, 1.0, 2.0)})
    for _ in range(3):
        await turns.take()
    assert turns.values() == {"broken": None, "one": 2.0}, "half of a measurement is none"
    assert turns.note() == f"; broken left out: {' '.join(str(error).split())}"
    assert len(tried) == 2, "not tried again"


@pytest.mark.asyncio
async def test_peer_whose_program_cannot_be_fetched_is_not_measured(tmp_path: Path) -> None:
    def fetch() -> Path:
        raise Missing("no network")

    measured, tried = breaks(ValueError("measured"))
    turns = Turns(Setting(tmp_path, quick=True), {"absent": Peer(measured.measure, fetch)})
    await turns.take()
    assert (turns.values(), turns.note(), tried) == ({"absent": None}, "; absent left out: no network", [])


@pytest.mark.asyncio
async def test_without_peers_none_is_started(tmp_path: Path) -> None:
    turns = Turns(Setting(tmp_path, quick=True, peers=False), {"one": breaks(ValueError("started"))[0]})
    await turns.take()
    assert (turns.values(), turns.note()) == ({}, "")


def test_every_peer_of_one_step_has_a_figure_of_others_to_stand_in_for_it(tmp_path: Path) -> None:
    assert waiting._step_peers(Setting(tmp_path, quick=True), 1).keys() == PUBLISHED.keys()


def test_program_is_fetched_once_and_appears_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    fetched: list[Path] = []

    def fetch(folder: Path) -> None:
        fetched.append(folder)
        (folder / "bin").mkdir()
        (folder / "bin" / "server").write_text("program")

    for _ in range(2):
        found = cached("server", "1.2", "bin/server", fetch)
        assert found == tmp_path / "deathless" / "server-1.2" / "bin" / "server"
        assert found.read_text() == "program"
    assert len(fetched) == 1
    assert [path.name for path in (tmp_path / "deathless").iterdir()] == ["server-1.2"]


def test_program_that_was_not_fetched_whole_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def fetch(folder: Path) -> None:
        (folder / "README").write_text("no program")

    with pytest.raises(Missing, match="its package has no server"):
        cached("server", "1.2", "server", fetch)
    assert list((tmp_path / "deathless").iterdir()) == []


def test_client_that_is_missing_or_fails_is_named() -> None:
    with pytest.raises(Missing, match="no `no-such-client` on the search path"):
        run("no-such-client", "install")
    with pytest.raises(Missing, match="false: "):
        run("false")
