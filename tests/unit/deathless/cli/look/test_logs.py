"""`deathless logs`: lines of all replicas in the order of time, tracebacks, levels, ages, and what comes next."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest
from tests.unit.deathless.cli.look.test_invocations import MANIFEST

from deathless.cli.look import logs as module
from deathless.cli.main import main
from deathless.cli.options import target
from deathless.shell.operate.log_history import in_order


def line(second: int, text: str, level: str = "info", **fields: object) -> bytes:
    told = {"time": f"2026-01-02T03:04:{second:02d}.000", "level": level, "process": "worker", "text": text, **fields}
    return msgspec.json.encode(told) + b"\n"


@pytest.fixture
def service(tmp_path: Path) -> Path:
    """The folder of a service whose replicas r0 and r1 have logged."""
    (tmp_path / "service.yaml").write_text(MANIFEST)
    replicas = tmp_path / ".deathless" / "bank" / "replicas"
    for name in ("r0", "r1"):
        (replicas / name).mkdir(parents=True)
    (replicas / "r0" / "replica.log.1").write_bytes(line(1, "moved aside"))
    (replicas / "r0" / "replica.log").write_bytes(line(3, "third", lsn=7) + b"printed\n" + line(9, "hidden", "debug"))
    failed = line(5, "failed", "error", traceback="Traceback:\n  ZeroDivisionError")
    (replicas / "r1" / "replica.log").write_bytes(line(2, "second") + failed)
    return replicas


def texts(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [json.loads(each)["text"] for each in capsys.readouterr().out.splitlines()]


def run(service: Path, *arguments: str) -> int:
    return main(["logs", "-f", str(service.parents[2] / "service.yaml"), *arguments])


def test_lines_of_all_replicas_are_in_the_order_of_time(service: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(service, "--json") == 0
    assert texts(capsys) == ["moved aside", "second", "third", "printed", "failed"]


def test_people_see_fields_and_tracebacks(service: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(service, "--level", "warning", "--replica", "r1")
    head, *below = capsys.readouterr().out.splitlines()
    assert head == "2026-01-02T03:04:05.000 r1 worker ERROR failed"
    assert below == ["    Traceback:", "      ZeroDivisionError"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--replica", "r0", "--level", "debug"], ["moved aside", "third", "printed", "hidden"]),
        (["--since", "2026-01-02T03:04:03"], ["third", "printed", "failed"]),
        (["--since", "1s"], []),
    ],
)
def test_lines_are_chosen(
    service: Path, arguments: list[str], expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(service, "--json", *arguments) == 0
    assert texts(capsys) == expected


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["--replica", "r7"], "r0, r1"), (["--since", "soon"], "--since"), (["--since", "9" * 9 + "d"], "--since")],
)
def test_what_is_not_there_is_refused_by_name(
    service: Path, arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(service, *arguments) == 64
    assert named in capsys.readouterr().err


def test_service_that_never_ran_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "service.yaml").write_text(MANIFEST)
    assert main(["logs", "-f", str(tmp_path / "service.yaml")]) == 64
    assert "kubectl logs" in capsys.readouterr().err


def test_following_shows_what_comes_and_replicas_that_join(service: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: asyncio.Queue[str] = asyncio.Queue()
    monkeypatch.setattr(module, "print_json_line", lambda told: shown.put_nowait(told["text"]))
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    parts = target(str(service.parents[2] / "service.yaml"), "", every=True).parts
    histories = module._histories(parts, ())
    assert len(list(in_order(histories.values()))) == 6

    async def follow() -> None:
        following = asyncio.create_task(module._follow(histories, parts, (), "info", as_json=True))
        try:
            with (service / "r0" / "replica.log").open("ab") as file:
                file.write(line(20, "later"))
            assert await asyncio.wait_for(shown.get(), 30) == "later"
            (service / "r2").mkdir()
            (service / "r2" / "replica.log").write_bytes(line(21, "joined"))
            assert await asyncio.wait_for(shown.get(), 30) == "joined"
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    asyncio.run(follow())
