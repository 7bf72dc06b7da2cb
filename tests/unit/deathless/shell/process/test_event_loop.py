"""The loop of a process: what it runs comes back, an error too, and it is the fastest that is installed."""

from __future__ import annotations

import asyncio

import pytest

from deathless.shell.process import event_loop


def test_what_the_coroutine_gives_comes_back() -> None:
    async def main() -> int:
        await asyncio.sleep(0)
        return 7

    assert event_loop.run(main()) == 7


def test_an_error_of_the_coroutine_comes_out() -> None:
    async def main() -> None:
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        event_loop.run(main())


def test_the_loop_is_the_one_that_is_named() -> None:
    async def main() -> str:
        return type(asyncio.get_running_loop()).__module__

    assert event_loop.run(main()).split(".")[0] == event_loop.name


def test_each_run_has_a_loop_of_its_own_which_is_closed_behind_it() -> None:
    async def main() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    first, second = event_loop.run(main()), event_loop.run(main())
    assert first is not second
    assert first.is_closed()
    assert second.is_closed()
