"""The process of an application: what it gets, what it prints, and that nothing of it is left."""

from __future__ import annotations

import asyncio
import os

import pytest

from deathless.base.errors import ApplicationNotStarted
from deathless.shell.foreign.child import Child, environment_of, fill_in

ENVIRONMENT = {"PATH": os.environ["PATH"]}


async def ran(
    script: str, environment: dict[str, str] = ENVIRONMENT, folder: str = "."
) -> tuple[int | None, list[str]]:
    """Run a shell's script to its end; gives its exit code and lines."""
    ended = asyncio.Event()
    child = Child(asyncio.get_running_loop(), ended.set)
    child.start(["/bin/sh", "-c", script], environment, folder)
    await ended.wait()
    child.close()
    return child.exit_code, list(child.last_lines)


def test_places_in_a_command_are_filled_in_and_other_braces_stay() -> None:
    assert fill_in(["--port={receivePort}", "{sendPort}", "{x}", "{"], {"receivePort": 1, "sendPort": 2}) == [
        "--port=1",
        "2",
        "{x}",
        "{",
    ]


def test_an_application_gets_nothing_of_our_environment_but_what_every_program_needs() -> None:
    ours = {"PATH": "/bin", "HOME": "/h", "DEATHLESS_TOKEN": "secret", "AWS_SECRET_ACCESS_KEY": "secret"}
    assert environment_of({"NODE_ENV": "production"}, ours) == {"PATH": "/bin", "HOME": "/h", "NODE_ENV": "production"}
    assert environment_of({"PATH": "/mine"}, ours)["PATH"] == "/mine"


@pytest.mark.asyncio
async def test_it_runs_in_its_folder_with_its_environment_and_an_empty_input(tmp_path: object) -> None:
    code, lines = await ran(
        'echo "$COLOUR"; pwd; cat; echo wrong >&2; exit 3', {**ENVIRONMENT, "COLOUR": "red"}, str(tmp_path)
    )
    assert code == 3
    assert sorted(lines) == sorted(["red", str(tmp_path), "wrong"])


@pytest.mark.asyncio
async def test_a_program_that_prints_without_an_end_is_read_and_ends() -> None:
    code, lines = await ran("head -c 8000000 /dev/zero; echo; echo done")
    assert code == 0
    assert any(line.endswith("bytes of output were dropped)") for line in lines)


@pytest.mark.asyncio
async def test_its_whole_group_is_killed_also_what_it_left_behind() -> None:
    read, write = os.pipe()
    os.set_inheritable(write, True)
    ended = asyncio.Event()
    child = Child(asyncio.get_running_loop(), ended.set)
    child.start(
        ["/bin/sh", "-c", f"sleep 1000 & sleep 1000 >/proc/{os.getpid()}/fd/{write} & exit 0"], ENVIRONMENT, "."
    )
    await ended.wait()
    os.close(write)
    child.kill()
    child.close()
    child.close()  # a second time does nothing
    # The pipe ends once nobody has it any more: the children that were left are gone.
    assert await asyncio.to_thread(os.read, read, 1) == b""
    os.close(read)
    assert child.exit_code == 0


@pytest.mark.asyncio
async def test_a_folder_that_is_not_there_is_told() -> None:
    child = Child(asyncio.get_running_loop(), lambda: None)
    with pytest.raises(ApplicationNotStarted, match="/no/such"):
        child.start(["/bin/true"], ENVIRONMENT, "/no/such")
    child.kill()
    child.close()
    assert (child.pid, child.exit_code) == (0, None)
