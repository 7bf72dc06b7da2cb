"""Forked helpers: `done` is told once how the child ended; a child holds no descriptor and dies with its parent."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from tests.unit.deathless.shell.unkillable import kills_in_vain

from deathless.shell.process.forked import NICE, Children, die_with_parent


def run_child(work: Callable[[], bool], max_s: float = 60.0) -> bool:
    """Give what `done` was told; a second call of it fails the future."""

    async def main() -> bool:
        loop = asyncio.get_running_loop()
        told = loop.create_future()
        Children(loop).run(work, told.set_result, max_s=max_s)
        return bool(await asyncio.wait_for(told, 30))

    return asyncio.run(main())


def refuse(number: int) -> Callable[..., NoReturn]:
    def refused(*_: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return refused


def raise_error() -> bool:
    raise KeyError("gone")


def leave() -> bool:
    raise SystemExit(0)


def kill_itself() -> bool:
    os.kill(os.getpid(), signal.SIGKILL)
    return True


def test_done_is_told_what_the_child_gave() -> None:
    assert run_child(lambda: True) is True
    assert run_child(lambda: False) is False


@pytest.mark.parametrize("work", [raise_error, leave, kill_itself])
def test_a_child_that_does_not_come_to_its_end_has_failed(work: Callable[[], bool]) -> None:
    assert run_child(work) is False


@pytest.fixture(name="forked")
def children_that_were_forked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Pids of the children that this test makes: other tests of this process may have left some."""
    forked: list[int] = []
    fork = os.fork

    def kept() -> int:
        forked.append(fork())
        return forked[-1]

    monkeypatch.setattr(os, "fork", kept)
    return forked


def test_a_child_that_takes_too_long_is_killed_and_has_failed(forked: list[int]) -> None:
    def work() -> bool:
        signal.alarm(60)
        signal.pause()
        return True

    async def main() -> None:
        loop = asyncio.get_running_loop()
        told = loop.create_future()
        children = Children(loop)
        children.run(work, told.set_result, max_s=0.2)
        assert await asyncio.wait_for(told, 30) is False
        [pid] = forked
        while True:  # it is reaped as well: nobody is left behind
            try:
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # noqa: ASYNC222  with WNOHANG
            except ChildProcessError:
                return
            await asyncio.sleep(0)

    asyncio.run(main())


def test_a_child_has_the_state_as_it_stood_and_changes_nothing_of_ours(tmp_path: Path) -> None:
    state = ["before"]

    def work() -> bool:
        (tmp_path / "seen").write_text(f"{os.getpid()} {state[0]}")
        state[0] = "child"
        return True

    async def main() -> None:
        loop = asyncio.get_running_loop()
        told = loop.create_future()
        Children(loop).run(work, told.set_result, max_s=60.0)
        state[0] = "parent"
        assert await asyncio.wait_for(told, 30)

    asyncio.run(main())
    pid, seen = (tmp_path / "seen").read_text().split()
    assert int(pid) != os.getpid()
    assert (seen, state) == ("before", ["parent"])


def test_a_child_closes_every_descriptor_but_the_standard_ones(tmp_path: Path) -> None:
    def work() -> bool:
        held = {int(name) for name in os.listdir("/proc/self/fd")}
        alive = set()
        for descriptor in held:
            try:
                os.fstat(descriptor)  # the one that listed them is closed again
            except OSError:
                continue
            alive.add(descriptor)
        return alive <= {0, 1, 2}

    kept = [(tmp_path / str(number)).open("w") for number in range(20)]
    try:
        assert run_child(work)
        assert not any(os.get_inheritable(file.fileno()) for file in kept)
        for file in kept:
            file.write("still ours")
    finally:
        for file in kept:
            file.close()


def test_a_child_ends_on_sigterm_whatever_its_parent_does_then() -> None:
    def work() -> bool:
        os.kill(os.getpid(), signal.SIGTERM)
        return True

    old = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assert run_child(work) is False
    finally:
        signal.signal(signal.SIGTERM, old)


@pytest.mark.parametrize("call", ["fork", "pidfd_open"])
def test_a_child_that_the_machine_refuses_is_one_that_failed(
    call: str, forked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work() -> bool:
        signal.alarm(60)
        signal.pause()  # nobody would tell it to end
        return True

    monkeypatch.setattr(os, call, refuse(errno.EMFILE))
    assert run_child(work) is False
    assert len(forked) == (call != "fork")
    for pid in forked:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)  # it is not left behind


def test_a_child_that_even_a_kill_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> bool:
        signal.alarm(60)
        signal.pause()
        return True

    monkeypatch.setattr(os, "pidfd_open", refuse(errno.EMFILE))
    with kills_in_vain(monkeypatch) as killed:
        assert run_child(work) is False
        assert len(killed) == 1


@pytest.mark.parametrize(("gives_way", "more"), [(True, NICE), (False, 0)])
def test_a_child_gives_way_to_handlers_but_where_callers_wait_for_it(
    gives_way: bool, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(os, "nice", asked.append)  # in the child as well; ours may be as low as it can be already

    async def main() -> bool:
        loop = asyncio.get_running_loop()
        told = loop.create_future()
        Children(loop).run(lambda: asked == [more], told.set_result, max_s=60.0, gives_way=gives_way)
        return bool(await asyncio.wait_for(told, 30))

    assert asyncio.run(main()) is True


def test_several_children_run_side_by_side_and_each_is_told_apart() -> None:
    async def main() -> list[bool]:
        loop = asyncio.get_running_loop()
        told = [loop.create_future() for _ in range(4)]
        children = Children(loop)
        for number, future in enumerate(told):
            children.run(lambda number=number: number % 2 == 0, future.set_result, max_s=60.0)  # type: ignore[misc]
        return list(await asyncio.wait_for(asyncio.gather(*told), 30))

    assert asyncio.run(main()) == [True, False, True, False]


def test_a_helper_dies_with_its_parent() -> None:
    reading, writing = os.pipe()
    ready_reading, ready_writing = os.pipe()
    middle = os.fork()
    if middle == 0:
        parent = os.getpid()
        if os.fork() == 0:
            signal.alarm(60)  # the kernel ends it before that
            die_with_parent(parent)
            os.write(ready_writing, b"r")
            signal.pause()
            os._exit(0)
        os.read(ready_reading, 1)
        os._exit(0)
    os.close(writing)
    os.waitpid(middle, 0)
    try:
        assert select.select([reading], [], [], 30)[0], "the helper's end of the pipe is still open"
        assert os.read(reading, 1) == b""
    finally:
        for descriptor in (reading, ready_reading, ready_writing):
            os.close(descriptor)


def test_a_helper_whose_parent_died_before_it_could_ask_ends_itself() -> None:
    pid = os.fork()
    if pid == 0:
        die_with_parent(os.getppid() + 1)  # not who started us
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
