"""A turn can't end its process, nor take all its memory; outside of turns everything is as it was."""

import atexit
import faulthandler
import gc
import locale
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from deathless.shell.turn_guards import GUARDED, memory_of_group

REVIEWED: Final[dict[ModuleType, dict[str, str]]] = {
    os: {
        "asks": "WCOREDUMP WEXITSTATUS WIFCONTINUED WIFEXITED WIFSIGNALED WIFSTOPPED WSTOPSIG WTERMSIG access confstr"
        " cpu_count ctermid device_encoding fpathconf fsdecode fsencode fspath fstat fstatvfs fwalk get_blocking"
        " get_exec_path get_inheritable get_terminal_size getcwd getcwdb getegid getenv getenvb geteuid getgid"
        " getgrouplist getgroups getloadavg getlogin getpgid getpgrp getpid getppid getpriority getrandom getresgid"
        " getresuid getsid getuid getxattr isatty listdir listxattr lstat major makedev minor pathconf"
        " process_cpu_count ptsname readlink scandir sched_get_priority_max sched_get_priority_min sched_getaffinity"
        " sched_getparam"
        " sched_getscheduler sched_rr_get_interval stat statvfs strerror sysconf tcgetpgrp timerfd_gettime"
        " timerfd_gettime_ns times ttyname uname urandom waitstatus_to_exitcode walk",
        "gives a new descriptor": "dup eventfd fdopen memfd_create open openpty pidfd_open pipe pipe2 posix_openpt"
        " timerfd_create",
        "acts on a descriptor that is named": "close copy_file_range eventfd_read eventfd_write fchmod fchown fdatasync"
        " fsync ftruncate grantpt lockf lseek posix_fadvise posix_fallocate pread preadv pwrite pwritev read readinto"
        " readv sendfile set_blocking set_inheritable splice timerfd_settime timerfd_settime_ns unlockpt write writev",
        "acts on a file that is named": "chmod chown lchown link makedirs mkdir mkfifo mknod remove removedirs"
        " removexattr rename renames replace rmdir setxattr symlink truncate unlink utime",
        "calls what is guarded": "execl execle execlp execlpe execvp execvpe popen spawnl spawnle spawnlp spawnlpe"
        " spawnv spawnve spawnvp spawnvpe",
        "only takes time": "sched_yield sync",
    },
    signal: {
        "asks": "getitimer getsignal sigpending strsignal valid_signals",
        "only takes time": "pause",
        "raises KeyboardInterrupt, as anybody may": "default_int_handler",
    },
    resource: {"asks": "getpagesize getrlimit getrusage"},
    sys: {
        "asks": "call_tracing exc_info exception get_asyncgen_hooks get_coroutine_origin_tracking_depth"
        " get_int_max_str_digits getallocatedblocks getdefaultencoding getdlopenflags getfilesystemencodeerrors"
        " getfilesystemencoding getprofile getrecursionlimit getrefcount getsizeof getswitchinterval gettrace"
        " getunicodeinternedsize intern is_finalizing is_remote_debug_enabled is_stack_trampoline_active",
        "prints": "displayhook excepthook unraisablehook",
        "tells the hooks that are there": "audit breakpointhook",
        "raises SystemExit, as anybody may": "exit",
        "an event loop sets it back when it ends": "set_asyncgen_hooks set_coroutine_origin_tracking_depth",
    },
    faulthandler: {"asks": "is_enabled", "prints": "dump_c_stack dump_traceback"},
    gc: {
        "asks": "get_count get_debug get_freeze_count get_objects get_referents get_referrers get_stats get_threshold"
        " is_finalized is_tracked isenabled",
        "only takes time": "collect",
    },
    locale: {
        "asks": "atof atoi currency dcgettext delocalize dgettext format format_string getdefaultlocale getencoding"
        " getlocale getpreferredencoding gettext localeconv localize nl_langinfo normalize str strcoll strxfrm",
    },
    socket: {
        "asks": "CMSG_LEN CMSG_SPACE getaddrinfo getdefaulttimeout getfqdn gethostbyaddr gethostbyname gethostbyname_ex"
        " gethostname getnameinfo getprotobyname getservbyname getservbyport has_dualstack_ipv6 htonl htons"
        " if_indextoname if_nameindex if_nametoindex inet_aton inet_ntoa inet_ntop inet_pton ntohl ntohs",
        "gives a new descriptor": "create_connection create_server dup fromfd socketpair",
        "acts on a descriptor that is named": "close recv_fds send_fds",
    },
    threading: {
        "asks": "Lock RLock activeCount active_count currentThread current_thread enumerate get_ident get_native_id"
        " getprofile gettrace main_thread",
        "prints": "excepthook",
    },
    time: {
        "asks": "asctime clock_getres clock_gettime clock_gettime_ns ctime get_clock_info gmtime localtime mktime"
        " monotonic monotonic_ns perf_counter perf_counter_ns process_time process_time_ns pthread_getcpuclockid"
        " strftime strptime thread_time thread_time_ns time time_ns",
        "only takes time": "sleep",
    },
    atexit: {"a library that cleans up after itself does it, and it runs at the end": "register", "asks": "unregister"},
}
"""What is not guarded, with the reason."""

PROGRAM = """
import asyncio, gc, locale, os, posix, resource, signal, socket, subprocess, sys, threading, time
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
        refused(os.chdir, "/"), refused(os.dup2, 0, 1), refused(os.setsid), refused(os.environ.update, {"a": "b"}),
        refused(os.environ.clear), refused(os.waitpid, -1, os.WNOHANG), refused(signal.pthread_sigmask, 0, [1]),
        refused(gc.disable), refused(locale.setlocale, locale.LC_ALL, "C"), refused(time.tzset),
        refused(socket.setdefaulttimeout, 1), refused(threading.stack_size, 1 << 20),
        refused(subprocess.run, ["true"]), refused(os.popen, "true"), refused(resource.prlimit, 0, 0, (1, 1)),
    ]
    reads = [
        refused(locale.setlocale, locale.LC_ALL), refused(locale.setlocale, locale.LC_ALL, None),
        refused(threading.stack_size), refused(resource.prlimit, 0, 0), refused(locale.textdomain, None),
    ]
    told += [reads]
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
    assert done.stdout.strip() == str([*["DL3032"] * 25, ["done"] * 5, "no loop", "no memory", 7])


def test_every_guarded_name_is_one_of_its_module() -> None:
    for module, names in GUARDED.items():
        assert any(hasattr(module, name) for name in names), module
    assert hasattr(subprocess, "_fork_exec"), "processes are started by another function now"


@pytest.mark.parametrize("module", list(REVIEWED), ids=lambda module: module.__name__)
def test_every_function_is_guarded_or_reviewed(module: ModuleType) -> None:
    """A function that a later Python brings is looked at before it is let through."""
    reviewed = {name for names in REVIEWED[module].values() for name in names.split()}
    guarded = set(GUARDED.get(module, ()))
    found = {
        name for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and not isinstance(value, type)
        and getattr(value, "__module__", "") != "typing"
    }  # fmt: skip
    assert found - guarded - reviewed == set(), "guard it, or say here why not"
    assert guarded & reviewed == set()


@pytest.mark.parametrize(("text", "bytes_max"), [("1048576\n", 1 << 20), ("max\n", sys.maxsize), (None, sys.maxsize)])
def test_memory_of_the_container_is_read_where_it_stands(tmp_path: Path, text: str | None, bytes_max: int) -> None:
    path = tmp_path / "memory.max"
    if text is not None:
        path.write_text(text)
    assert memory_of_group((str(tmp_path / "none"), str(path))) == bytes_max
