"""A turn can't end its process, nor take all its memory; outside of turns everything is as it was."""

import _posixsubprocess
import asyncio
import atexit
import codecs
import decimal
import faulthandler
import gc
import locale
import multiprocessing
import os
import random
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

from deathless.execution.check.rules import find_ban
from deathless.shell.process.turn_guards import GUARDED, memory_of_group

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
        " getlocale gettext localeconv localize nl_langinfo normalize str strcoll strxfrm",
        "calls what is guarded": "getpreferredencoding",
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
        "reads TZ again, which no turn changes; `strptime` calls it": "tzset",
    },
    subprocess: {
        "asks": "list2cmdline",
        "calls what is guarded": "call check_call check_output getoutput getstatusoutput run",
    },
    _posixsubprocess: {},
    multiprocessing: {
        "asks": "active_children cpu_count current_process get_all_start_methods get_context get_logger"
        " get_start_method parent_process",
        "calls what is guarded": "Manager Pool",
        "says how processes are started, and none is in a turn": "allow_connection_pickling freeze_support"
        " set_executable set_forkserver_preload set_start_method",
        "gives a new object": "Array Barrier BoundedSemaphore Condition Event JoinableQueue Lock Pipe Queue RLock"
        " RawArray RawValue Semaphore SimpleQueue Value",
        "prints": "log_to_stderr",
    },
    asyncio: {
        "asks": "all_tasks current_task get_child_watcher get_event_loop get_event_loop_policy get_running_loop"
        " iscoroutine iscoroutinefunction isfuture",
        "needs a loop, and a turn has none but one of its own": "as_completed create_eager_task_factory"
        " create_subprocess_exec create_subprocess_shell create_task eager_task_factory ensure_future gather"
        " open_connection open_unix_connection run_coroutine_threadsafe shield sleep start_server start_unix_server"
        " timeout timeout_at to_thread wait wait_for wrap_future",
        "gives a new object": "new_event_loop",
        "the loop of a thread, which a running one goes before": "run set_event_loop",
        "prints": "capture_call_graph format_call_graph print_call_graph",
        "acts on a future that is named": "future_add_to_awaited_by future_discard_from_awaited_by",
    },
    codecs: {
        "asks": "EncodedFile ascii_decode ascii_encode backslashreplace_errors charmap_build charmap_decode"
        " charmap_encode decode encode escape_decode escape_encode getdecoder getencoder getincrementaldecoder"
        " getincrementalencoder getreader getwriter ignore_errors iterdecode iterencode latin_1_decode latin_1_encode"
        " lookup lookup_error make_encoding_map make_identity_dict namereplace_errors raw_unicode_escape_decode"
        " raw_unicode_escape_encode readbuffer_encode replace_errors strict_errors unicode_escape_decode"
        " unicode_escape_encode utf_16_be_decode utf_16_be_encode utf_16_decode utf_16_encode utf_16_ex_decode"
        " utf_16_le_decode utf_16_le_encode utf_32_be_decode utf_32_be_encode utf_32_decode utf_32_encode"
        " utf_32_ex_decode utf_32_le_decode utf_32_le_encode utf_7_decode utf_7_encode utf_8_decode utf_8_encode"
        " xmlcharrefreplace_errors",
        "gives a new descriptor": "open",
    },
    decimal: {
        "asks": "IEEEContext",
        "sets back what it sets": "localcontext",
        "`deathless check` names it; where a handler waits it is that handler's own": "getcontext setcontext",
    },
    random: {
        "`deathless check` names all chance that is not of ctx": "betavariate binomialvariate choice choices"
        " expovariate gammavariate gauss getrandbits getstate lognormvariate normalvariate paretovariate randbytes"
        " randint random randrange sample seed setstate shuffle triangular uniform vonmisesvariate weibullvariate",
        "prints": "main",
    },
    atexit: {"a library that cleans up after itself does it, and it runs at the end": "register", "asks": "unregister"},
}
"""What is not guarded, with the reason."""

PROGRAM = """
import asyncio, codecs, datetime, decimal, gc, json, locale, logging, os, posix, re, resource, signal, socket
import subprocess, sys, threading, time, zoneinfo
from multiprocessing.util import spawnv_passfds
import msgspec
from os import _exit as early
from deathless.shell.process.turn_guards import TurnGuards
from deathless.base.errors import ForbiddenInTurn
guards = TurnGuards(256 << 20)
from os import _exit as imported

def refused(call, *args):
    try:
        call(*args)
    except ForbiddenInTurn as error:
        return error.code
    return "done"

def use_decimals():
    with decimal.localcontext() as context:
        context.prec = 3
        return decimal.Decimal(1) / 3

async def main():
    leave = guards()
    told = [
        refused(imported, 3), refused(os.abort), refused(posix._exit, 3), refused(os.fork),
        refused(os.kill, os.getpid(), 9), refused(os.execv, "/bin/true", ["true"]), refused(os.system, "true"),
        refused(signal.raise_signal, 9), refused(sys.setrecursionlimit, 10), refused(os.umask, 0o777),
        refused(os.chdir, "/"), refused(os.dup2, 0, 1), refused(os.setsid), refused(os.environ.update, {"a": "b"}),
        refused(os.environ.clear), refused(os.waitpid, -1, os.WNOHANG), refused(signal.pthread_sigmask, 0, [1]),
        refused(gc.disable), refused(locale.setlocale, locale.LC_ALL, "C"),
        refused(socket.setdefaulttimeout, 1), refused(threading.stack_size, 1 << 20),
        refused(subprocess.run, ["true"]), refused(os.popen, "true"), refused(resource.prlimit, 0, 0, (1, 1)),
        refused(spawnv_passfds, b"/bin/true", [b"true"], ()), refused(asyncio.set_event_loop_policy, None),
        refused(codecs.register, len),
    ]
    reads = [
        refused(locale.setlocale, locale.LC_ALL), refused(locale.setlocale, locale.LC_ALL, None),
        refused(threading.stack_size), refused(resource.prlimit, 0, 0), refused(locale.textdomain, None),
        refused(lambda: locale.setlocale(category=locale.LC_ALL)),
    ]
    works = [
        refused(use_decimals), refused(json.loads, "[1]"), refused(re.compile, "q+"), refused(msgspec.json.encode, [1]),
        refused(datetime.datetime.strptime, "2026", "%Y"), refused(zoneinfo.ZoneInfo, "UTC"),
        refused(logging.getLogger("a").warning, "said"), refused(codecs.lookup, "cp1252"), refused(gc.collect),
    ]
    told += [reads, works]
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
    assert done.stdout.strip() == str([*["DL3032"] * 27, ["done"] * 6, ["done"] * 9, "no loop", "no memory", 7])


def test_every_guarded_name_is_one_of_its_module() -> None:
    for module, names in GUARDED.items():
        assert any(hasattr(module, name) for name in names), module
    assert hasattr(subprocess, "_fork_exec"), "processes are started by another function now"


def test_check_names_all_that_is_guarded() -> None:
    names = {f"{module.__name__}.{name}" for module, names in GUARDED.items() for name in names}
    assert {name for name in names if find_ban(name) is None} == set(), "give it a ban in check_rules"


def test_every_guarded_module_is_reviewed() -> None:
    assert set(GUARDED) - set(REVIEWED) == set()


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


UNBOUNDED = """
import os
from deathless.base.errors import ForbiddenInTurn
from deathless.shell.process.turn_guards import TurnGuards
leave = TurnGuards(None)()
held = bytearray(700 << 20)
try:
    os.system("true")
except ForbiddenInTurn:
    print(len(held))
leave()
"""


def test_a_tool_bounds_no_memory_and_refuses_the_same() -> None:
    done = subprocess.run([sys.executable, "-c", UNBOUNDED], check=True, capture_output=True, text=True)
    assert done.stdout == f"{700 << 20}\n"


THREAD = """
import os, threading
from deathless.shell.process.turn_guards import TurnGuards, guard_thread
from deathless.base.errors import ForbiddenInTurn
TurnGuards(None)

def refused():
    try:
        os.umask(os.umask(0o22))
    except ForbiddenInTurn as error:
        return error.code
    return "done"

told, inside, outside = [], threading.Event(), threading.Event()

def turn():
    leave = guard_thread()
    told.append(refused())
    inside.set()
    outside.wait()
    leave()
    told.append(refused())

thread = threading.Thread(target=turn)
thread.start()
inside.wait()
told.append(refused())
outside.set()
thread.join()
print(told)
"""


def test_a_thread_is_guarded_while_the_rest_of_the_process_goes_on() -> None:
    done = subprocess.run([sys.executable, "-c", THREAD], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str(["DL3032", "done", "done"])
