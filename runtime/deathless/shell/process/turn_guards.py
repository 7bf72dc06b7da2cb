"""What a turn must not do to its own process, and what it does not see of it.

A turn runs inside of a replica: a call of `os._exit` in a handler would end the replica, and every one that takes over
after it. So while a turn runs, what ends, copies, replaces, signals or limits the process, or sets anything of it that
outlives the turn, raises ForbiddenInTurn instead: an ordinary exception, which fails that turn, recorded and the same
in all replicas. The functions are replaced where they live, before the author's code is imported, so that names it
imported are guarded too. A call that only reads is let through.

So it is wherever else turns of a log are run: by a replay, by the former code beside an upgrader, in a rehearsal, and
in the thread of an upgrader that meets suspended handlers with the new code (`guard_thread`). There the error is what
the log's digest stands for, and nothing that a replica refuses is done by a tool.

A turn of a replica has `TURN_MEMORY_BYTES_MAX` of memory beyond what the process had before it, and gets MemoryError
for more. That ends the worker, for what fits differs between replicas; the message is then set aside
(core.primary.suspicion).

Guarantees: outside of turns everything is as it was. Does not: keep native code from crashing, or a loop from lasting;
those end the process, and the message is set aside. Nor see what is done with a descriptor or a file that is named, nor
what modules keep in their own memory, of which `deathless check` names the context of decimals.
"""

from __future__ import annotations

import _posixsubprocess
import asyncio
import codecs
import faulthandler
import functools
import gc
import locale
import os
import posix
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Final

from deathless.base.errors import ForbiddenInTurn

GUARDED: Final[dict[ModuleType, tuple[str, ...]]] = {
    os: (
        "_exit", "abort", "chdir", "chroot", "closerange", "dup2", "execv", "execve", "fchdir", "fork", "forkpty",
        "initgroups", "kill", "killpg", "login_tty", "nice", "posix_spawn", "posix_spawnp", "putenv",
        "register_at_fork", "reload_environ", "sched_setaffinity", "sched_setparam", "sched_setscheduler", "setegid",
        "seteuid", "setgid", "setgroups", "setns", "setpgid", "setpgrp", "setpriority", "setregid", "setresgid",
        "setresuid", "setreuid", "setsid", "setuid", "system", "tcsetpgrp", "umask", "unsetenv", "unshare", "wait",
        "wait3", "wait4", "waitid", "waitpid",
    ),
    subprocess: ("_fork_exec",),
    _posixsubprocess: ("fork_exec",),
    signal: (
        "alarm", "pidfd_send_signal", "pthread_kill", "pthread_sigmask", "raise_signal", "set_wakeup_fd", "setitimer",
        "siginterrupt", "signal", "sigtimedwait", "sigwait", "sigwaitinfo",
    ),
    resource: ("prlimit", "setrlimit"),
    sys: (
        "activate_stack_trampoline", "addaudithook", "deactivate_stack_trampoline", "remote_exec",
        "set_int_max_str_digits", "setdlopenflags", "setprofile", "setrecursionlimit", "setswitchinterval", "settrace",
    ),
    faulthandler: (
        "_fatal_error_c_thread", "_read_null", "_sigabrt", "_sigfpe", "_sigsegv", "_stack_overflow",
        "cancel_dump_traceback_later", "disable", "dump_traceback_later", "enable", "register", "unregister",
    ),
    asyncio: ("set_child_watcher", "set_event_loop_policy"),
    codecs: ("register", "register_error", "unregister"),
    gc: ("disable", "enable", "freeze", "set_debug", "set_threshold", "unfreeze"),
    locale: ("bind_textdomain_codeset", "bindtextdomain", "resetlocale", "setlocale", "textdomain"),
    socket: ("setdefaulttimeout", "sethostname"),
    threading: ("setprofile", "setprofile_all_threads", "settrace", "settrace_all_threads", "stack_size"),
    time: ("clock_settime", "clock_settime_ns"),
}  # fmt: skip
"""What is guarded; a name that this Python or this system does not have is left out."""

READS: Final = {
    "locale.bind_textdomain_codeset": 1,
    "locale.bindtextdomain": 1,
    "locale.setlocale": 1,
    "locale.textdomain": 0,
    "resource.prlimit": 2,
    "threading.stack_size": 0,
}
"""A call of these with so many arguments, and none or None behind them, only reads."""

SAID: Final = {
    "_posixsubprocess.fork_exec": "multiprocessing.Process.start",
    "subprocess._fork_exec": "subprocess.Popen",
}
"""What an author called, where the guarded function is behind that."""

MEMORY_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
MEMORY_MIN: Final = 64 << 20  # a turn may always take so much
LOOK_S: Final = 0.05  # between two looks at the memory of the process, which a system call tells
GROUP_SHARE: Final = 4  # it may take one of so many parts of what its container has
STATM: Final = "/proc/self/statm"
_DATA: Final = 5  # its field: pages of data and stack
_PAGE: Final = resource.getpagesize()
_set_limit: Final = resource.setrlimit


class _Turns:
    """Is a turn being run?"""

    running = False  # by the thread that all else of the process waits for
    threads: Final[set[int]] = set()  # that run turns of their own, while the rest of the process goes on


def install() -> None:
    """Guard this process; a second time nothing happens."""
    for module, names in GUARDED.items():
        for name in names:
            function = getattr(module, name, None)
            if function is None or hasattr(function, "__wrapped__"):
                continue
            guarded = _guard(f"{module.__name__}.{name}", function)
            setattr(module, name, guarded)
            if module is os and hasattr(posix, name):
                setattr(posix, name, guarded)


def _guard(name: str, function: Callable[..., object]) -> Callable[..., object]:
    reads = READS.get(name)
    said = SAID.get(name, name)

    @functools.wraps(function)
    def guarded(*args: object, **kwargs: object) -> object:
        turn = _Turns.running or threading.get_ident() in _Turns.threads
        if turn and (reads is None or any(each is not None for each in (*args, *kwargs.values())[reads:])):
            raise ForbiddenInTurn(f"{said} was called in a handler")
        return function(*args, **kwargs)

    return guarded


class TurnGuards:
    """What stands around the turns of one process; called to enter, it gives what leaves.

    Args:
        memory_bytes_max: what turns may take beyond what the process has; None: as much as there is.
    """

    def __init__(self, memory_bytes_max: int | None) -> None:
        install()
        most = max(MEMORY_MIN, memory_of_group() // GROUP_SHARE)
        self._memory_bytes_max = 0 if memory_bytes_max is None else min(memory_bytes_max, most)  # 0: all there is
        self._statm = _open_statm()
        self._soft, self._hard = resource.getrlimit(resource.RLIMIT_DATA)
        self._limit = 0  # as it was set last; 0: it was not
        self._look_at = 0.0  # when the process's memory is to be looked at again, monotonic seconds

    def __call__(self) -> Callable[[], object]:
        """Turns begin; gives what to call when they have ended."""
        loop = asyncio._get_running_loop()  # noqa: SLF001 - there is no other way to hide a loop from code it calls
        asyncio._set_running_loop(None)  # noqa: SLF001 - as above
        if not self._limit or time.monotonic() >= self._look_at:
            self.more_memory()
        else:
            _set_limit(resource.RLIMIT_DATA, (self._limit, self._hard))
        _Turns.running = True

        def leave() -> None:
            _Turns.running = False
            _set_limit(resource.RLIMIT_DATA, (self._soft, self._hard))
            asyncio._set_running_loop(loop)  # noqa: SLF001 - and to bring it back

        return leave

    def more_memory(self) -> None:
        """Count the memory of turns from what the process has now."""
        used = self._used() if self._memory_bytes_max else 0
        if used:
            wanted = used + self._memory_bytes_max
            if self._soft != resource.RLIM_INFINITY:
                wanted = min(wanted, self._soft)
            _set_limit(resource.RLIMIT_DATA, (wanted, self._hard))
            self._limit = wanted
            self._look_at = time.monotonic() + LOOK_S

    def _used(self) -> int:
        """Bytes of data that the process has; 0: the system does not say."""
        if self._statm < 0:
            return 0
        return int(os.pread(self._statm, 200, 0).split()[_DATA]) * _PAGE


def guard_thread() -> Callable[[], object]:
    """Turns begin in this thread; gives what to call there when they have ended.

    What they must not do is refused to this thread alone: the rest of the process goes on, as the worker of an upgrader
    does, which follows the log meanwhile. Their memory is not bounded, and a thread that they start is not guarded.
    Somebody has made TurnGuards before the author's code was imported.
    """
    me = threading.get_ident()
    _Turns.threads.add(me)
    return lambda: _Turns.threads.discard(me)


def memory_of_group(files: tuple[str, ...] = MEMORY_LIMITS) -> int:
    """Bytes that the container of this process may have; a very large number where nothing limits it."""
    for path in files:
        try:
            with open(path, "rb") as file:
                return int(file.read())
        except (OSError, ValueError):
            continue
    return sys.maxsize


def _open_statm() -> int:
    try:
        return os.open(STATM, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
