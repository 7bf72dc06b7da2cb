"""A turn can't end its process, nor take all its memory; outside of turns everything is as it was."""

import subprocess
import sys
from pathlib import Path

import pytest

from deathless.shell.turn_guards import GUARDED, memory_of_group

PROGRAM = """
import asyncio, os, posix, signal, sys
from os import _exit as early
from deathless.shell.turn_guards import TurnGuards
from deathless.base.errors import ForbiddenInTurn
guards = TurnGuards(256 << 20)
from os import _exit as imported

def refused(call, *args):
    try:
        call(*args)
    except ForbiddenInTurn as error:
        return error.code
    return "done"

async def main():
    leave = guards()
    told = [
        refused(imported, 3), refused(os.abort), refused(posix._exit, 3), refused(os.fork),
        refused(os.kill, os.getpid(), 9), refused(os.execv, "/bin/true", ["true"]), refused(os.system, "true"),
        refused(signal.raise_signal, 9), refused(sys.setrecursionlimit, 10), refused(os.umask, 0o777),
        refused(os.chdir, "/"), refused(os.dup2, 0, 1),
    ]
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        told.append("no loop")
    try:
        bytearray(1 << 30)
    except MemoryError:
        told.append("no memory")
    leave()
    asyncio.get_running_loop()
    kept = bytearray(1 << 30)
    pid = os.fork()
    if not pid:
        os._exit(7)
    told.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    print(told)

asyncio.run(main())
"""


def test_what_ends_a_process_is_an_error_in_a_turn_and_works_outside() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([*["DL3032"] * 12, "no loop", "no memory", 7])


def test_every_guarded_name_is_one_of_its_module() -> None:
    for module, names in GUARDED.items():
        assert any(hasattr(module, name) for name in names), module


@pytest.mark.parametrize(("text", "bytes_max"), [("1048576\n", 1 << 20), ("max\n", sys.maxsize), (None, sys.maxsize)])
def test_memory_of_the_container_is_read_where_it_stands(tmp_path: Path, text: str | None, bytes_max: int) -> None:
    path = tmp_path / "memory.max"
    if text is not None:
        path.write_text(text)
    assert memory_of_group((str(tmp_path / "none"), str(path))) == bytes_max
