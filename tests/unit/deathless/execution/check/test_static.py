"""What reading a service's code finds, and what it leaves alone."""

import textwrap

import pytest

from deathless.execution.check.static import Finding, Root, Source, check_sources

HEAD = """
import time, random, os, datetime, weakref, itertools, collections, functools
from time import time as now
from typing import Any
CACHE: dict = {}
COUNTER = itertools.count()
NAMES = {"a", "b"}
class Item:
    tags: set[str]
    seen = []
def words() -> set[str]: return NAMES
def helper(): return time.time()
"""


def check(body: str, kind: str = "handler", arguments: str = "state, ctx") -> list[Finding]:
    text = HEAD + f"def handle({arguments}):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    line = len(HEAD.splitlines()) + 1
    return check_sources([Source("m", "m.py", text)], [Root("handle", kind, "m.py", line)])


def rules(body: str, kind: str = "handler", arguments: str = "state, ctx") -> set[str]:
    return {finding.rule for finding in check(body, kind, arguments)}


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("return time.time()", "clock"),
        ("return now()", "clock"),
        ("clock = time.monotonic\nreturn clock()", "clock"),
        ("return datetime.datetime.now()", "clock"),
        ("return helper()", "clock"),
        ("import time as t\nreturn t.time()", "clock"),
        ("return datetime.datetime.fromtimestamp(3)", "zone"),
        ("return ctx.now.astimezone()", "zone"),
        ("return time.localtime(3)", "zone"),
        ("return random.random()", "random"),
        ("return random.Random().random()", "random"),
        ("return os.urandom(3)", "random"),
        ("return os.environ['X']", "environment"),
        ("return os.getpid()", "environment"),
        ("return open('x')", "file"),
        ("return os.path.exists('x')", "file"),
        ("return id(state)", "identity"),
        ("return hash('x')", "hash"),
        ("return f'{3.5:n}'", "locale"),
        ("return weakref.ref(state)", "finalizer"),
        ("class Local:\n    def __del__(self): pass", "finalizer"),
        ("try: helper2()\nexcept: pass", "catch"),
        ("try: helper2()\nexcept (ValueError, RecursionError): pass", "catch"),
        ("try: helper2()\nexcept BaseException: pass", "catch"),
        ("for name in NAMES: pass", "set-order"),
        ("for name in {1, 2}: pass", "set-order"),
        ("for name in set('ab'): pass", "set-order"),
        ("for name in words(): pass", "set-order"),
        ("for tag in state.tags: pass", "set-order"),
        ("for tag in state.words(): pass", "set-order"),
        ("for tag in state.tags | {'x'}: pass", "set-order"),
        ("for tag in state.tags.union(['x']): pass", "set-order"),
        ("for key in state.a.keys() & state.b.keys(): pass", "set-order"),
        ("mine = {1, 2}\nreturn list(mine)", "set-order"),
        ("mine: set[int] = given()\nreturn list(mine)", "set-order"),
        ("if (mine := {1, 2}): return tuple(mine)", "set-order"),
        ("for x in (mine := {1}): pass", "set-order"),
        ("return [x for x in ({1} if state else {2})]", "set-order"),
        ("return {x: 1 for x in NAMES}", "set-order"),
        ("return ', '.join(NAMES)", "set-order"),
        ("return ', '.join(x for x in NAMES)", "set-order"),
        ("return print(*NAMES)", "set-order"),
        ("a, b = {1, 2}", "set-order"),
        ("return {1, 2}.pop()", "set-order"),
        ("return f'{NAMES}'", "set-order"),
        ("return str(NAMES)", "set-order"),
        ("yield from NAMES", "set-order"),
        ("return sorted(NAMES, key=len)", "set-order"),
        ("return sum(NAMES)", "float-sum"),
        ("return sum(state.prices[x] for x in NAMES)", "float-sum"),
        ("global CACHE\nCACHE = {}", "global"),
        ("CACHE['x'] = 1", "global"),
        ("CACHE['x']['y'] += 1", "global"),
        ("del CACHE['x']", "global"),
        ("CACHE.update(x=1)", "global"),
        ("Item.count = 1", "global"),
        ("a, CACHE['x'] = 1, 2", "global"),
        ("os.thing = 3", "global"),
        ("return next(COUNTER)", "global"),
        ("handle.calls = 1", "global"),
        ("global TOTAL\nTOTAL: int = 3", "global"),
    ],
)
def test_what_would_differ_in_a_replay_is_found(body: str, rule: str) -> None:
    assert rules(body) == {rule}


@pytest.mark.parametrize(
    "body",
    [
        "return datetime.datetime(2030, 1, 1) + datetime.timedelta(1)",
        "return datetime.datetime.fromtimestamp(3, tz=datetime.UTC)",
        "return ctx.now.astimezone(datetime.UTC)",
        "return random.Random(ctx.random.randint(0, 9)).random()",
        "return os.path.join('a', 'b')",
        "time = state.time\nreturn time.time()",
        "id = 3\nreturn id",
        "return sorted(NAMES), len(NAMES), max(NAMES), 'a' in NAMES",
        "return any(x for x in NAMES), sorted(x for x in NAMES), min([x for x in NAMES])",
        "return {x + 1 for x in NAMES}",
        "print(*state.items)\nyield from [x for x in state.items]",
        "mine = {1}\nmine = [1]\nreturn list(mine)",
        "mine = {}\nmine['x'] = 1\nmine.update(y=2)\nfor x in mine: pass",
        "state.log.append(1)\nstate.map['x'] = 1",
        "return CACHE.get('x'), CACHE['x']",
        "import math\nreturn math.fsum(x for x in NAMES)",
        "try: helper2()\nexcept ValueError as error: return str(error)",
        "return f'{3.5:.2f} {state}'",
        "return sorted(state.items, key=len)",
        "CACHE = {}\nCACHE['x'] = 1",
    ],
)
def test_what_is_the_same_in_every_replay_is_left_alone(body: str) -> None:
    assert check(body) == []


def test_finding_names_file_line_handler_and_what_to_use() -> None:
    (finding,) = check("x = 1\nreturn time.time()")
    assert (finding.path, finding.line, finding.handlers) == ("m.py", len(HEAD.splitlines()) + 3, ("handle",))
    assert finding.text == "time.time: the clock differs in every run; use ctx.now"


@pytest.mark.parametrize("arguments", ["state, ctx, into=[]", "state, ctx, *, into={}"])
def test_default_that_all_calls_share_must_not_be_changed(arguments: str) -> None:
    assert rules("into.append(1)", arguments=arguments) == {"global"}
    assert rules("return into", arguments=arguments) == set()


def test_set_given_as_an_argument_has_no_order() -> None:
    assert rules("return list(items)", arguments="state, ctx, items: 'set[str]'") == {"set-order"}


def test_default_is_read_as_well() -> None:
    assert rules("return at", arguments="state, ctx, at=time.time()") == {"clock"}


def test_comment_allows_a_line() -> None:
    assert rules("return list(NAMES)  # deathless: allow set-order  it is only counted") == set()
    assert rules("return list(NAMES)  # deathless: allow clock") == {"set-order"}


@pytest.mark.parametrize("body", ["return time.time(), open('x'), list(NAMES)"])
def test_query_may_look_at_the_world(body: str) -> None:
    assert rules(body, "query") == set()


def test_query_must_not_change_what_handlers_see() -> None:
    assert rules("CACHE['x'] = time.time()", "query") == {"global"}


def test_what_is_set_for_the_whole_process_is_set_at_import_alone() -> None:
    text = (
        "import sys, faulthandler\nfaulthandler.enable()\nsys.setswitchinterval(1)\n"
        "def handle(state, ctx):\n    sys.settrace(None)\n"
    )
    for kind in ("handler", "query"):
        (finding,) = check_sources([Source("m", "m.py", text)], [Root("handle", kind, "m.py", 4)])
        assert (finding.line, finding.rule) == (5, "process")


def test_context_of_decimals_is_set_for_a_block_alone() -> None:
    assert rules("import decimal\ndecimal.getcontext().prec = 3") == {"global"}
    assert rules("import decimal\ndecimal.setcontext(state.context)", "query") == {"global"}
    assert rules("import decimal\nwith decimal.localcontext() as context: context.prec = 3") == set()


def test_module_that_acts_on_import_is_told_without_a_handler() -> None:
    findings = check_sources([Source("m", "m.py", "import random\nrandom.seed(3)\nX = random.random()\n")], [])
    assert [(finding.line, finding.rule, finding.handlers) for finding in findings] == [(2, "random", ())]


def test_value_drawn_at_import_is_told_where_a_handler_uses_it() -> None:
    text = "import random\nRATE = random.random()\nOTHER = random.random()\ndef handle(state, ctx):\n    return RATE\n"
    (finding,) = check_sources([Source("m", "m.py", text)], [Root("handle", "handler", "m.py", 4)])
    assert (finding.line, finding.handlers) == (2, ("handle",))


def test_methods_of_the_state_are_read_with_their_class() -> None:
    text = (
        "import time\nfrom dataclasses import field\n\nclass State:\n    at: float = field(default_factory=time.time)\n"
        "    count = 0\n    def touch(self):\n        self.at = time.time()\n"
        "    @classmethod\n    def born(cls):\n        cls.count += 1\n    def __del__(self):\n        pass\n"
    )
    findings = check_sources([Source("m", "m.py", text)], [Root("handle", "handler", "m.py", 4)])
    assert [(finding.line, finding.rule) for finding in findings] == [
        (5, "clock"), (8, "clock"), (11, "global"), (12, "finalizer"),
    ]  # fmt: skip


def test_handlers_that_share_a_helper_are_all_named() -> None:
    text = "import time\ndef late(): return time.time()\ndef a(s, c): late()\ndef b(s, c): late()\n"
    roots = [Root("b", "handler", "m.py", 4), Root("a", "handler", "m.py", 3), Root("gone", "handler", "x.py", 1)]
    (finding,) = check_sources([Source("m", "m.py", text)], roots)
    assert finding.handlers == ("a", "b")


def test_findings_are_ordered_and_told_once() -> None:
    findings = check("b = time.time(); c = time.time()\nreturn random.random()")
    assert [finding.rule for finding in findings] == ["clock", "random"]


ACTIVITY = """
import time
def work(x): return time.time()
async def handle(state, ctx):
    await ctx.run(work, 3)
    {call}
"""


def test_what_an_activity_does_is_left_alone() -> None:
    text = ACTIVITY.format(call="return 3")
    root = Root("handle", "handler", "m.py", 4)
    assert check_sources([Source("m", "m.py", text)], [root], [("m.py", 3), ("gone.py", 1)]) == []
    (finding,) = check_sources([Source("m", "m.py", text)], [root])
    assert finding.rule == "clock"


def test_activity_that_is_called_outright_is_found() -> None:
    text = ACTIVITY.format(call="return work(3)")
    (finding,) = check_sources([Source("m", "m.py", text)], [Root("handle", "handler", "m.py", 4)], [("m.py", 3)])
    assert (finding.line, finding.rule, finding.text) == (6, "activity", "work is an activity; ask for it with ctx.run")
    other = Source("n", "n.py", "import m\nasync def handle(state, ctx):\n    m.work(3)\n")
    sources = [Source("m", "m.py", text), other]
    (finding,) = check_sources(sources, [Root("handle", "handler", "n.py", 2)], [("m.py", 3)])
    assert (finding.path, finding.rule) == ("n.py", "activity")


def test_async_handler_and_what_it_awaits_are_read_like_any_other() -> None:
    text = """
import asyncio, time
class Helper:
    async def words(self) -> set[str]: return {"a"}
    async def now(self): return time.time()
async def helper(): return [word for word in await Helper().words()]
async def handle(state, ctx):
    await asyncio.sleep(1)
    async def inner(): return time.time()
    await inner()
    return await helper()
"""
    findings = check_sources([Source("m", "m.py", text)], [Root("handle", "handler", "m.py", 7)])
    assert {(finding.line, finding.rule) for finding in findings} >= {(8, "async"), (9, "clock")}
