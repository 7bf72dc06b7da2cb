"""`deathless fork` on the command line: what it is asked for, and what it tells."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deathless.base.errors import InvalidArgument
from deathless.cli.change import fork as module
from deathless.core.replica.fork_cut import ForkPlace
from deathless.shell.operate.forking import fork as forking
from deathless.shell.operate.forking.fork import ForkPlan


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was planned and carried out, of a fork in which shop had sent two messages that stock had not received."""
    noted: list[Any] = []

    async def plan(sources: list[object], through: dict[str, int], tell: object) -> ForkPlan:
        noted.append((len(sources), through))
        places = [
            ForkPlace(7, b"\1" * 16, {"stock": 5}, {"stock": 2}, {}, {}),
            ForkPlace(4, b"\2" * 16, {}, {}, {"shop": 3}, {}),
        ]
        named = zip(("shop", "stock"), places, strict=True)
        return ForkPlan([], [SimpleNamespace(original=SimpleNamespace(name=n), place=p) for n, p in named])  # type: ignore[misc]

    async def carry_out(plan: ForkPlan, folder: Path, tell: object) -> None:
        noted.append(folder.name)

    def target(manifest: str, directory: str, *, every: bool) -> SimpleNamespace:
        name = Path(directory or manifest).stem
        assert every
        return SimpleNamespace(config=SimpleNamespace(service=name), loaded=None if directory else object())

    monkeypatch.setattr(module, "target", target)
    monkeypatch.setattr(forking, "plan_fork", plan)
    monkeypatch.setattr(forking, "carry_out", carry_out)
    return noted


def ran(folder: Path, *more: str) -> Result:
    named = ["-f", "shop.yaml", "-f", "stock.yaml", "--to", str(folder / "sandbox"), *more]
    return CliRunner().invoke(module.fork, named, standalone_mode=False, catch_exceptions=False)


def test_it_tells_where_services_are_cut_and_what_is_sent_again(asked: list[Any], tmp_path: Path) -> None:
    told = ran(tmp_path, "--at", "shop:9")
    assert asked == [(2, {"shop": 9}), "sandbox"]
    assert told.stdout.splitlines() == [
        "shop: cut at lsn 7",
        "stock: cut at lsn 4",
        "shop sends 2 messages to stock again, which it had not received",
        f"start each: deathless up --detach {tmp_path}/sandbox/shop.yaml",
    ]


def test_dry_run_writes_nothing(asked: list[Any], tmp_path: Path) -> None:
    told = json.loads(ran(tmp_path, "--dry-run", "--json").stdout)
    assert asked == [(2, {})]
    assert told["forked"] is False
    assert told["services"][1] == {"service": "stock", "lsn": 4, "chain": "02" * 16}
    assert told["messagesBetween"][0] == {"from": "shop", "to": "stock", "count": 2}


@pytest.mark.parametrize("place", ["shop", "shop:", "shop:-1", ":4", "shop:01"])
def test_place_that_names_none_is_refused(asked: list[Any], tmp_path: Path, place: str) -> None:
    with pytest.raises(InvalidArgument, match="names no place"):
        ran(tmp_path, "--at", place)
    assert not asked


def test_log_is_read_where_it_was_imported(asked: list[Any], tmp_path: Path) -> None:
    ran(tmp_path, "--log", "stock:imported/stock", "--dry-run")
    assert asked == [(2, {})]


@pytest.mark.parametrize(
    ("log", "why"),
    [
        ("stock", "names no log"),
        ("stock:", "names no log"),
        ("mail:imported/mail", "names mail, which is not forked"),
        ("stock:imported/shop", "imported/shop holds the log of shop, not of stock"),
    ],
)
def test_log_of_no_service_of_the_fork_is_refused(asked: list[Any], tmp_path: Path, log: str, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        ran(tmp_path, "--log", log)
    assert not asked
