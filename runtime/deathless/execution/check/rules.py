"""What a handler must not use, as tables: dotted name to rule and what to use instead.

A longer name wins over a shorter one; `None` allows what a shorter name forbids. Guarantees: nothing; these are data.
Imports nothing of ours.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Ban(NamedTuple):
    """Why a name is forbidden."""

    rule: str
    why: str


_CLOCK: Final = Ban("clock", "the clock differs in every run; use ctx.now")
_ZONE: Final = Ban("zone", "local time depends on the machine's zone; give a zone")
_CHANCE: Final = Ban("random", "chance differs in every run; use ctx.random or ctx.uuid")
_THREAD: Final = Ban("thread", "threads and processes run in no fixed order")
_ASYNC: Final = Ban("async", "no event loop runs while a handler does")
_NETWORK: Final = Ban("network", "the network answers otherwise in a replay")
_FILE: Final = Ban("file", "files differ between machines and moments")
_ENVIRONMENT: Final = Ban("environment", "the environment differs between processes")
_LOCALE: Final = Ban("locale", "the locale differs between machines")
_IDENTITY: Final = Ban("identity", "addresses, reference counts and frames differ between processes")
_HASH: Final = Ban("hash", "hashes of text differ between processes; use hashlib or zlib.crc32")
_NATIVE: Final = Ban("native", "code outside Python can't be checked")
_PROCESS: Final = Ban("process", "it is set for the whole process and outlives the turn; set it at import")
_CONTEXT: Final = Ban("global", "the context outlives the turn; use `with decimal.localcontext()`")
_COLLECTION: Final = Ban("finalizer", "when an object goes differs between processes")

BANS: Final[dict[str, Ban | None]] = {
    "time": _CLOCK,
    "time.struct_time": None,
    "time.localtime": _ZONE,
    "time.mktime": _ZONE,
    "time.strftime": _LOCALE,
    "time.tzname": _ZONE,
    "time.timezone": _ZONE,
    "datetime.datetime.now": _CLOCK,
    "datetime.datetime.utcnow": _CLOCK,
    "datetime.datetime.today": _CLOCK,
    "datetime.date.today": _CLOCK,
    "random": _CHANCE,
    "_random": _CHANCE,
    "secrets": _CHANCE,
    "uuid.uuid1": _CHANCE,
    "uuid.uuid4": _CHANCE,
    "uuid.uuid6": _CHANCE,
    "uuid.uuid7": _CHANCE,
    "uuid.getnode": _CHANCE,
    "numpy.random": _CHANCE,
    "ssl.RAND_bytes": _CHANCE,
    "threading": _THREAD,
    "_thread": _THREAD,
    "multiprocessing": _THREAD,
    "concurrent": _THREAD,
    "subprocess": _THREAD,
    "_posixsubprocess": _THREAD,
    "signal": _THREAD,
    "sched": _THREAD,
    "asyncio": _ASYNC,
    "selectors": _ASYNC,
    "select": _ASYNC,
    "trio": _ASYNC,
    "anyio": _ASYNC,
    "socket": _NETWORK,
    "socketserver": _NETWORK,
    "ssl": _NETWORK,
    "http.client": _NETWORK,
    "http.server": _NETWORK,
    "urllib.request": _NETWORK,
    "ftplib": _NETWORK,
    "smtplib": _NETWORK,
    "aiohttp": _NETWORK,
    "httpx": _NETWORK,
    "requests": _NETWORK,
    "urllib3": _NETWORK,
    "builtins.open": _FILE,
    "io.open": _FILE,
    "io.FileIO": _FILE,
    "tempfile": _FILE,
    "shutil": _FILE,
    "glob": _FILE,
    "fileinput": _FILE,
    "sqlite3": _FILE,
    "dbm": _FILE,
    "shelve": _FILE,
    "linecache": _FILE,
    "importlib.resources": _FILE,
    "pathlib.Path": _FILE,
    "pathlib.PosixPath": _FILE,
    "mmap": _FILE,
    "os": _ENVIRONMENT,
    "os.fspath": None,
    "os.fsencode": None,
    "os.fsdecode": None,
    "os.sep": None,
    "os.PathLike": None,
    "os.path": None,
    "os.urandom": _CHANCE,
    "os.getrandom": _CHANCE,
    "os.fork": _THREAD,
    "os.system": _THREAD,
    "os.popen": _THREAD,
    "os.open": _FILE,
    "os.listdir": _FILE,
    "os.scandir": _FILE,
    "os.walk": _FILE,
    "os.stat": _FILE,
    "os.path.exists": _FILE,
    "os.path.isfile": _FILE,
    "os.path.isdir": _FILE,
    "os.path.getsize": _FILE,
    "os.path.getmtime": _FILE,
    "os.path.abspath": _FILE,
    "os.path.realpath": _FILE,
    "os.path.expanduser": _ENVIRONMENT,
    "os.path.expandvars": _ENVIRONMENT,
    "builtins.input": _ENVIRONMENT,
    "getpass": _ENVIRONMENT,
    "platform": _ENVIRONMENT,
    "pwd": _ENVIRONMENT,
    "resource": _ENVIRONMENT,
    "sys.argv": _ENVIRONMENT,
    "sys.path": _ENVIRONMENT,
    "sys.flags": _ENVIRONMENT,
    "sys.modules": _ENVIRONMENT,
    "sys.stdin": _ENVIRONMENT,
    "sys.executable": _ENVIRONMENT,
    "sys.setrecursionlimit": _ENVIRONMENT,
    "sys.activate_stack_trampoline": _PROCESS,
    "sys.addaudithook": _PROCESS,
    "sys.deactivate_stack_trampoline": _PROCESS,
    "sys.remote_exec": _PROCESS,
    "sys.set_int_max_str_digits": _PROCESS,
    "sys.setdlopenflags": _PROCESS,
    "sys.setprofile": _PROCESS,
    "sys.setswitchinterval": _PROCESS,
    "sys.settrace": _PROCESS,
    "faulthandler": _PROCESS,
    "codecs.register": _PROCESS,
    "codecs.register_error": _PROCESS,
    "codecs.unregister": _PROCESS,
    "decimal.getcontext": _CONTEXT,
    "decimal.setcontext": _CONTEXT,
    "locale": _LOCALE,
    "gettext": _LOCALE,
    "builtins.id": _IDENTITY,
    "sys.getrefcount": _IDENTITY,
    "sys.getsizeof": _IDENTITY,
    "sys._getframe": _IDENTITY,
    "inspect.stack": _IDENTITY,
    "inspect.currentframe": _IDENTITY,
    "traceback": _IDENTITY,
    "tracemalloc": _IDENTITY,
    "builtins.hash": _HASH,
    "ctypes": _NATIVE,
    "cffi": _NATIVE,
    "gc": _COLLECTION,
    "weakref": _COLLECTION,
    "atexit": _COLLECTION,
}

SEEDED: Final = ("random.Random",)
"""Deterministic when called with a seed."""

CAUGHT: Final = ("BaseException", "RecursionError", "MemoryError", "SystemExit", "KeyboardInterrupt", "GeneratorExit")
"""What no handler may catch: it depends on the process, or must end it."""

SETS: Final = ("set", "frozenset", "Set", "FrozenSet", "AbstractSet", "MutableSet")
"""Annotations of a set."""

SET_METHODS: Final = ("union", "intersection", "difference", "symmetric_difference")
"""Methods that give a set."""

ORDERED_CALLS: Final = frozenset(
    {
        "builtins.list",
        "builtins.tuple",
        "builtins.iter",
        "builtins.enumerate",
        "builtins.zip",
        "builtins.map",
        "builtins.filter",
        "builtins.next",
        "builtins.sum",
        "builtins.str",
        "builtins.repr",
        "builtins.print",
        "builtins.reversed",
        "math.prod",
        "functools.reduce",
        "itertools.chain",
        "itertools.islice",
        "itertools.accumulate",
        "itertools.product",
        "itertools.combinations",
        "itertools.permutations",
        "itertools.groupby",
        "itertools.cycle",
        "itertools.zip_longest",
        "collections.deque",
        "collections.OrderedDict",
        "collections.Counter",
        "statistics.mean",
        "statistics.fmean",
    }
)
"""What gives another result for another order of what it is given."""

ORDERED_METHODS: Final = ("join", "extend", "fromkeys", "writelines", "from_iterable", "extendleft")
"""Methods of which the same is true."""

UNORDERED_CALLS: Final = frozenset(
    {
        "builtins.sorted",
        "builtins.min",
        "builtins.max",
        "builtins.any",
        "builtins.all",
        "builtins.len",
        "builtins.set",
        "builtins.frozenset",
        "math.fsum",
    }
)
"""What gives the same result for every order."""

LOCAL_TIME: Final = ("datetime.datetime.fromtimestamp", "datetime.date.fromtimestamp")
"""What takes the machine's zone unless one is given."""

MUTATORS: Final = frozenset(
    {
        "append",
        "appendleft",
        "extend",
        "extendleft",
        "insert",
        "add",
        "update",
        "setdefault",
        "pop",
        "popleft",
        "popitem",
        "remove",
        "discard",
        "clear",
        "sort",
        "reverse",
        "rotate",
        "difference_update",
        "intersection_update",
        "symmetric_difference_update",
        "subtract",
        "move_to_end",
        "send",
        "write",
        "__setitem__",
    }
)
"""Methods that change what they are called on."""

QUERY_RULES: Final = frozenset({"global", "thread", "process", "finalizer"})
"""A query is not replayed, so it may look at a clock; but it must not change what handlers see."""

IMPORT_RULES: Final = frozenset({"process"})
"""What a module may do when it is imported, though no handler may."""


def find_ban(dotted: str) -> Ban | None:
    """Give the ban on a dotted name, the longest that fits; None: it may be used."""
    while dotted:
        if dotted in BANS:
            return BANS[dotted]
        dotted = dotted.rpartition(".")[0]
    return None
