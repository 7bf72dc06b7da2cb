"""What every test gets: hypothesis profiles, and the mark that its folder stands for.

Guarantees: the same run in CI draws the same examples (derandomized), so a red build can be repeated; a
developer's run draws new ones and keeps the failing ones in `.hypothesis`. No example has a deadline: a slow
machine is no finding. A test below `tests/process` carries the mark `process`, one below `tests/sim` the mark
`sim`, one below `tests/spark` the mark `spark`, one below `tests/kafka` the mark `kafka`, so nobody can forget it and
have real processes started side by side;
a test that needs etcd, root or an API server stands in a folder that the Makefile collects for such. A program that
sets logs up in a test's process leaves nothing behind at the root logger. No test begins once the time in TESTS_END_AT
(seconds since 1970) is past; the last lines say how many were left out by that. What a test's server
accepted ends with its loop (`tests.accepted_connections`), what its replicas left in memory is removed, and a process
that it let go is waited for (`tests.started_processes`). Code that a test writes is what runs, also where it is
written twice within a second: byte code of it is kept nowhere.

Does not: hand out ports (bind port 0 and ask the socket) or wait for time to pass.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from left_pages import remove_pages_below
from tests.accepted_connections import end_accepted_connections
from tests.long import MODULE_S, is_long
from tests.started_processes import end_dropped_processes, keep_dropped_processes

TESTS = Path(__file__).parent
MARK_OF_FOLDER = {
    "clickhouse": "clickhouse",
    "cluster": "cluster",
    "kafka": "kafka",
    "process": "process",
    "sim": "sim",
    "spark": "spark",
}
FOLDERS_OF_MARK = {"etcd": {"process", "conformance"}, "root": {"process"}, "apiserver": {"apiserver"}}

settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")
end_accepted_connections()
keep_dropped_processes()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--quick`."""
    parser.addoption("--quick", action="store_true", help="leave out what `tests/long.py` lists")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave long modules out where that is asked for; nothing of them is imported."""
    long = collection_path.is_relative_to(TESTS) and is_long(collection_path.relative_to(TESTS).as_posix())
    return True if long and config.getoption("--quick") else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the garbage collector from looking at 20,000 tests again and again, now and while they run."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test the mark of its folder."""
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else ""
        if folder in MARK_OF_FOLDER:
            item.add_marker(MARK_OF_FOLDER[folder])
        for mark, folders in FOLDERS_OF_MARK.items():
            if item.get_closest_marker(mark) is not None and folder not in folders:
                raise pytest.UsageError(f"{item.nodeid} has mark {mark}, and is looked for in {sorted(folders)} alone")


def _log_handlers() -> list[logging.Handler]:
    return [each for each in logging.getLogger().handlers if not type(each).__module__.startswith("_pytest.")]


@pytest.fixture(autouse=True)
def root_logger_as_it_was() -> Iterator[None]:
    """Take off what a program left behind: it would write what later tests log to a stream that is closed."""
    root = logging.getLogger()
    level, before = root.level, _log_handlers()
    yield
    root.setLevel(level)
    for each in _log_handlers():
        if each not in before:
            root.removeHandler(each)


@pytest.fixture(autouse=True)
def no_pages_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Remove what killed replicas of a test left in memory."""
    kills = request.node.get_closest_marker("process") is not None and "tmp_path" in request.fixturenames
    folder = request.getfixturevalue("tmp_path") if kills else None
    yield
    if folder is not None:
        remove_pages_below(folder)


@pytest.fixture(autouse=True, scope="session")
def no_byte_code() -> Iterator[None]:
    """Write no byte code while tests run: a module's is taken for current if its second and size are those of before.

    That of the tests themselves is written before, as they are collected, and that of the tree by `make install`.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)
        patch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Wait for the processes that a test let go; it fails if they go on."""
    yield
    if left := end_dropped_processes():
        pytest.fail(f"{item.name} let a process go that has not ended: {', '.join(left)}")


_END_AT = float(os.environ.get("TESTS_END_AT") or "inf")
_OVER = "the time for tests (TESTS_END_AT) is over"
_left_out: list[str] = []  # as reported: the tests may run in other processes
_took_s: defaultdict[str, float] = defaultdict(float)  # by module


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin no test, and none of its fixtures, once the time for tests is over."""
    if time.time() > _END_AT:
        pytest.skip(_OVER)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up what the tests of each module take, and note which were not begun."""
    if report.skipped and _OVER in str(report.longrepr):
        _left_out.append(report.nodeid)
    _took_s[report.nodeid.partition("::")[0]] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how many tests were not begun, and the first of them; and what a quick run had better leave out."""
    if config.getoption("--quick"):
        for module, seconds in sorted(_took_s.items(), key=lambda each: -each[1]):
            if seconds > 2 * MODULE_S:  # a busy machine is no reason to move a module
                terminalreporter.write_line(f"{module} took {seconds:.1f} s: is it one for tests/long.py?")
    if _left_out:
        terminalreporter.write_line(
            f"tests left out: {len(_left_out)} from {_left_out[0]} on, since the time for tests (TESTS_END_AT) was over"
        )
