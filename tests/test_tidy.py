"""The tree keeps its rules; each rule is also shown a tree that breaks it.

What a machine can see, no reviewer has to look for. A rule is a function of `Tree` (path -> text) that gives findings;
`test_tree_keeps_rule` runs all over this tree, `test_rule_finds_what_breaks_it` over small trees with one fault each,
so that a blind rule fails. Exceptions stand in the tables below, with reasons; one that is not needed any more fails.

Does not: check what ruff, mypy, import-linter and deptry check (test_tooling.py shows that those are awake).
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parent.parent
Tree = Mapping[str, str]
Rule = Callable[[Tree], list[str]]

MODULE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70
TEST_LINES_MAX = 40
FILE_BYTES_MAX = 1 << 20

# Test functions over 40 lines, as path::name, and why.
LONG_TESTS: dict[str, str] = {}
# Modules without a test file of their own, and the file that tests them instead.
TESTED_ELSEWHERE: dict[str, str] = {
    "runtime/deathless/execution/invocations/difference.py": (
        "tests/unit/deathless/execution/invocations/test_restoration.py"
    ),
    "runtime/deathless/execution/invocations/misfits.py": (
        "tests/unit/deathless/execution/invocations/test_restoration.py"
    ),
    "operator/deathless_operator/handlers/reconcile_whole.py": (
        "tests/unit/deathless_operator/handlers/test_reconcile_pipeline.py"
    ),
    "runtime/deathless/cli/demo/service_2.py": "tests/process/test_cli_demo.py",
    "runtime/deathless/cli/demo/upgrades.py": "tests/process/test_cli_demo.py",
    "runtime/deathless/cli/run/dev.py": "tests/process/test_cli_dev.py",
    "runtime/deathless/cli/change/pipelines.py": "tests/process/test_cli_pipelines.py",
    "runtime/deathless/foreign/host.py": "tests/process/test_application.py",
    "runtime/deathless/spark/agent.py": "tests/process/test_spark_agent.py",
    "runtime/deathless/spark/driver.py": "tests/spark/test_pipelines.py",
    "runtime/deathless/spark/source.py": "tests/spark/test_source.py",
    "runtime/deathless/sources/kafka.py": "tests/kafka/test_source.py",
    "runtime/deathless/sources/kafka_client.py": "tests/kafka/test_outages.py",
    "runtime/deathless/cli/change/adopt.py": "tests/process/test_cli_adopt.py",
    "runtime/deathless/cli/change/offline.py": "tests/process/test_offline_upgrade.py",
    "runtime/deathless/shell/operate/upgrading/offline_upgrade.py": "tests/process/test_offline_upgrade.py",
    "runtime/deathless/shell/operate/upgrading/rehearsal_child.py": "tests/process/test_cli_rehearse.py",
    "runtime/deathless/shell/operate/upgrading/migration_child.py": "tests/process/test_cli_upgrade.py",
    "runtime/deathless/shell/operate/upgrading/upgrade_check.py": "tests/process/test_cli_upgrade.py",
    "runtime/deathless/shell/operate/upgrading/live_upgrade.py": "tests/process/test_live_upgrade.py",
    "runtime/deathless/shell/operate/upgrading/local_upgraders.py": "tests/process/test_live_upgrade.py",
    "runtime/deathless/cli/run/former.py": "tests/process/test_pod_upgrade.py",
    "runtime/deathless/simulation/nodes/former.py": "tests/sim/test_scenarios.py",
    "runtime/deathless/simulation/nodes/source_node.py": "tests/sim/test_streams.py",
    "runtime/deathless/simulation/runs/streams.py": "tests/sim/test_streams.py",
    "runtime/deathless/simulation/workload/inputs.py": "tests/sim/test_streams.py",
    "runtime/deathless/simulation/workload/codes.py": "tests/sim/test_scenarios.py",
    "runtime/deathless/cli/look/checkpoint.py": "tests/process/test_cli_tools.py",
    "runtime/deathless/cli/look/log.py": "tests/process/test_cli_log.py",
    "runtime/deathless/cli/look/parked.py": "tests/process/test_cli_tools.py",
    "runtime/deathless/cli/primary.py": "tests/process/test_cli_tools.py",
    "runtime/deathless/cli/look/replay.py": "tests/process/test_cli_log.py",
    "runtime/deathless/cli/run/replica.py": "tests/process/test_pod_replica.py",
    "runtime/deathless/cli/look/status.py": "tests/process/test_cli_tools.py",
    "runtime/deathless/shell/lock_stores/inspection.py": "tests/process/test_cli_log.py",
    "runtime/deathless/testing/links.py": "tests/unit/deathless/testing/test_environment.py",
    "runtime/deathless/testing/peer_links.py": "tests/unit/deathless/testing/test_fake_peer.py",
    "runtime/deathless/testing/primary.py": "tests/unit/deathless/testing/test_environment.py",
    "runtime/deathless/testing/served.py": "tests/unit/deathless/testing/test_environment.py",
    "runtime/deathless/shell/worker/connections.py": "tests/unit/deathless/shell/worker/test_worker.py",
    "runtime/deathless/core/supervisor/events.py": "tests/unit/deathless/core/supervisor/test_machine.py",
    "runtime/deathless/shell/supervisor/other_replicas.py": "tests/unit/deathless/shell/test_supervisor_held.py",
    "runtime/deathless/shell/supervisor/standing_view.py": "tests/unit/deathless/shell/test_supervisor_held.py",
    "runtime/deathless/shell/supervisor/starting.py": "tests/unit/deathless/shell/test_supervisor_settings.py",
    "runtime/deathless/shell/operate/start_code.py": "tests/process/test_kept_code.py",
    "runtime/deathless/shell/operate/verification.py": "tests/process/test_cli_log.py",
    "runtime/deathless/simulation/workload/client_node.py": "tests/sim/test_seeds.py",
    "runtime/deathless/simulation/world/clock.py": "tests/sim/test_seeds.py",
    "runtime/deathless/simulation/nodes/cluster.py": "tests/sim/test_seeds.py",
    "runtime/deathless/simulation/nodes/copies.py": "tests/sim/test_scenarios.py",
    "runtime/deathless/simulation/world/directory.py": "tests/sim/test_safeguards.py",
    "runtime/deathless/simulation/runs/injector.py": "tests/sim/test_seeds.py",
    "runtime/deathless/simulation/runs/upgrades.py": "tests/sim/test_seeds.py",
    "runtime/deathless/simulation/workload/lab.py": "tests/sim/test_scenarios.py",
    "runtime/deathless/simulation/world/lock.py": "tests/unit/deathless/simulation/test_sim_lock.py",
    "runtime/deathless/simulation/world/page.py": "tests/sim/test_scenarios.py",
    "runtime/deathless/simulation/nodes/checkpoints.py": "tests/sim/test_scenarios.py",
    "runtime/deathless/simulation/nodes/connections.py": "tests/sim/test_seeds.py",
    "runtime/deathless/simulation/nodes/lock_port.py": "tests/sim/test_seeds.py",
    "runtime/deathless/simulation/nodes/segment_maker.py": "tests/sim/test_seeds.py",
    "runtime/deathless/simulation/nodes/upstream.py": "tests/sim/test_seeds.py",
    "runtime/deathless/simulation/nodes/peer_links.py": "tests/sim/test_services.py",
    "runtime/deathless/simulation/nodes/replica_node.py": "tests/sim/test_seeds.py",
    "runtime/deathless/simulation/runs/run.py": "tests/sim/test_determinism.py",
    "runtime/deathless/simulation/runs/services.py": "tests/sim/test_services.py",
    "runtime/deathless/simulation/runs/services_verdict.py": "tests/sim/test_services.py",
    "runtime/deathless/simulation/world/sockets.py": "tests/sim/test_seeds.py",
    "runtime/deathless/simulation/nodes/supervisor_node.py": "tests/sim/test_seeds.py",
    "runtime/deathless/simulation/runs/verdict.py": "tests/sim/test_safeguards.py",
    "runtime/deathless/simulation/workload/visits.py": "tests/sim/test_services.py",
    "runtime/deathless/simulation/nodes/worker_node.py": "tests/sim/test_seeds.py",
}
SKIPS: dict[str, str] = {  # test files that may leave tests out, and where
    "tests/clickhouse/conftest.py": "where neither Debian's packages nor the engine can be had there is no ClickHouse",
    "tests/apiserver/real_api_server.py": "where neither binaries nor Go are there is no API server to build",
    "tests/cluster/conftest.py": "some machines can run no cluster; file systems of kind's nodes can't be broken",
    "tests/cluster/test_program_pods.py": "where Go is missing there is no program to put into an image",
    "tests/conftest.py": "a run that is told when it must end begins no test behind it, and counts them",
    "tests/process/etcd_server.py": "where Go is missing there is no etcd to build",
    "tests/process/go_program.py": "where Go is missing there is no example in Go to build",
    "tests/process/postgresql_server.py": "where PostgreSQL is neither installed nor can be there is none to start",
    "tests/process/test_copies.py": "where /tmp is an overlay or lies in memory a copy is only warned of",
    "tests/process/test_drill_agent_on_node.py": "cgroups and a network of its own need root, nft and nsenter",
    "tests/process/test_etcd_set.py": "one test mounts FUSE file systems, which needs root and bindfs",
    "tests/process/test_no_false_alarms.py": "read-only mounts need root; a copy in memory is only warned of",
    "tests/process/test_partitions.py": "network namespaces need root",
    "tests/unit/deathless/shell/foreign/test_check_bytes.py": "some machines have no libxxhash",
    "tests/process/test_storage_faults.py": "mounting small and failing file systems needs root and bindfs",
    "tests/process/test_slow_storage.py": "slow syncs are made by a library that a C compiler makes",
    "tests/unit/deathless/topics/test_remote.py": "where curl is missing, what the page says to type is not typed",
    "tests/unit/lab/test_go_programs.py": "where Go is missing nothing can be compiled",
    "tests/unit/charts/conftest.py": "where Go is missing there is no helm to render with",
}
# Test files that may sleep, and why nothing else would do.
SLEEPS: dict[str, str] = {
    "tests/cluster/front_door.py": "callers pause between two calls, as people do; nothing waits for a guessed time",
    "tests/cluster/test_program_pods.py": "its callers are those of front_door.py",
    "tests/process/replica_set.py": "callers pause between two calls, as people do; nothing waits for a guessed time",
    "tests/process/etcd_server.py": "polls a server in another process, which offers nothing to wait on",
}

# One letter of each word stands in brackets, so that this file does not contain what it looks for.
LATER = re.compile(r"\b(TOD[O]|FIXM[E]|XX[X]|HAC[K]|NotImplementedErro[r]|placeholde[r])\b")
MACHINE = re.compile(r"(^|[^A-Za-z0-9_.])/(wor[k]|far[m]|roo[t]|tmp/la[b])/[A-Za-z.]")
REGISTRY = re.compile(r"pyp[i]\.org|pythonhoste[d]\.org|proxy\.golan[g]\.org|npmj[s]\.org|(extra-|--)inde[x]-url")
CODE = re.compile(r"^DL\d{4}$")
ROOT_CODE = "DL0000"

SWITCHES = "runtime/deathless/base/safeguards.py"
CORE, TEST = "runtime/deathless/core/roles.py", "tests/test_roles.py"  # where faults are planted


# ---------------------------------------------------------------- reading


@cache
def parsed(text: str) -> ast.Module:
    """Parse a module; each rule reads all of them."""
    return ast.parse(text)


def read_tree() -> dict[str, str]:
    """Return path -> text of every file that is or would be committed; binary files have an empty text."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if (ROOT / ".git").exists():
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    else:
        hidden = re.compile(r"(^|/)(\.venv|build|dist|__pycache__|\.[a-z_]+_cache|\.hypothesis|[^/]*\.egg-info)/")
        every = (path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*") if path.is_file())
        listed = [name for name in every if not hidden.search(name)]
    tree = {}
    for name in sorted(filter(None, listed)):
        if (ROOT / name).is_file():
            content = (ROOT / name).read_bytes()
            tree[name] = "" if b"\0" in content else content.decode("utf-8", "replace")
    return tree


def python(tree: Tree, *tops: str) -> Iterator[tuple[str, str]]:
    """Yield (path, text) of the Python files below the given folders."""
    for path, text in tree.items():
        if path.endswith(".py") and path.startswith(tops):
            yield path, text


def functions(text: str) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, int]]:
    """Yield each function with its count of lines, decorators left out."""
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node, (node.end_lineno or node.lineno) - node.lineno + 1


def does_something(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Tell whether a function is more than a promise: a Protocol's methods are a docstring and dots."""
    return not all(isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) for part in node.body)


def lines_with(tree: Tree, pattern: re.Pattern[str], *, leave_out: tuple[str, ...] = ()) -> list[str]:
    """Return path:line of every line that the pattern matches."""
    return [
        f"{path}:{number}: {line.strip()[:300]}"
        for path, text in tree.items()
        if not path.startswith(leave_out) or not leave_out
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def against_table(found: Mapping[str, str], table: Mapping[str, str], name: str) -> list[str]:
    """Return what was found and is not in the table, and what the table still excuses without need."""
    news = [text for key, text in found.items() if key not in table]
    return news + [f"{key}: not needed in {name} any more, take it out" for key in table if key not in found]


# ---------------------------------------------------------------- rules


def plain_folders_hold_packages(tree: Tree) -> list[str]:
    """`operator/__init__.py` would shadow the standard library; tests are no packages."""
    bad = re.compile(r"^(operator|runtime)/__init__\.py$|^tests/(.*/)?__init__\.py$")
    return [path for path in tree if bad.search(path)]


def folders_of_modules_are_packages(tree: Tree) -> list[str]:
    """Without `__init__.py` a folder drops out of the import contracts in silence."""
    folders = {str(PurePosixPath(path).parent) for path, _ in python(tree, "runtime/deathless", "operator/deathless_")}
    return [f"{folder}/__init__.py is missing" for folder in sorted(folders) if f"{folder}/__init__.py" not in tree]


def modules_open_with_docstring(tree: Tree) -> list[str]:
    """Each module says why it exists before its first statement."""
    files = python(tree, "runtime/", "operator/", "tests/", "lab/", "tools/", "bench/", "examples/")
    return [path for path, text in files if not ast.get_docstring(parsed(text))]


def modules_are_short(tree: Tree) -> list[str]:
    """A module of more than 800 lines is two."""
    files = python(tree, "runtime/", "operator/", "tests/", "lab/", "tools/")
    return [
        f"{path}: {text.count(chr(10))} lines, at most {MODULE_LINES_MAX}"
        for path, text in files
        if text.count(chr(10)) > MODULE_LINES_MAX
    ]


def functions_are_short(tree: Tree) -> list[str]:
    """A function over 70 lines needs a docstring that says why, and nine of ten fit on a screen."""
    found, sizes = [], []
    for path, text in python(tree, "runtime/", "operator/"):
        for node, size in functions(text):
            sizes.append(size)
            if size > FUNCTION_LINES_MAX and not ast.get_docstring(node):
                found.append(f"{path}:{node.lineno}: {node.name} has {size} lines and no docstring")
    if len(sizes) >= 10 and (tenth := sorted(sizes)[len(sizes) * 9 // 10]) > 30:
        found.append(f"one function in ten has {tenth} lines or more; at most 30")
    return found


def tests_are_short_sentences(tree: Tree) -> list[str]:
    """A test's name is a sentence of three words or more and its body at most 40 lines."""
    words, long = [], {}
    for path, text in python(tree, "tests/"):
        for node, size in functions(text):
            if not node.name.startswith("test_"):
                continue
            if node.name.count("_") < 3:
                words.append(f"{path}:{node.lineno}: {node.name} is not a sentence")
            if size > TEST_LINES_MAX:
                long[f"{path}::{node.name}"] = f"{path}:{node.lineno}: {node.name} has {size} lines"
    return words + against_table(long, LONG_TESTS, "LONG_TESTS")


def each_module_has_its_test_file(tree: Tree) -> list[str]:
    """Tests mirror the tree, so that what a module promises is found at once.

    A package within a layer may have one file for all its modules: `test_checkers.py` for `simulation/checkers/`.
    """
    missing = {}
    for path, text in python(tree, "runtime/", "operator/"):
        name = PurePosixPath(path).name
        if name in {"__init__.py", "__main__.py"} or not any(does_something(node) for node, _ in functions(text)):
            continue
        inner = PurePosixPath(*PurePosixPath(path).parts[1:])
        test = f"tests/unit/{inner.parent}/test_{name}"
        together = f"tests/unit/{inner.parent.parent}/test_{inner.parent.name}.py"
        if test not in tree and not (len(inner.parts) > 3 and together in tree):
            missing[path] = f"{path}: {test} is missing"
    gone = [f"{path}: {test} is gone" for path, test in TESTED_ELSEWHERE.items() if test not in tree]
    return gone + against_table(missing, TESTED_ELSEWHERE, "TESTED_ELSEWHERE")


def nothing_is_left_for_later(tree: Tree) -> list[str]:
    """What is not done is written on the issue, not into the code."""
    code = {path: text for path, text in tree.items() if path.endswith((".py", ".yaml", ".tpl", ".sh"))}
    return lines_with(code, LATER)


def no_path_of_one_machine(tree: Tree) -> list[str]:
    """The tree works wherever it is cloned to."""
    return lines_with(tree, MACHINE)


def no_registry_is_named(tree: Tree) -> list[str]:
    """Which index packages come from is the environment's to say."""
    return lines_with(tree, REGISTRY)


def servers_end_by_one_function(tree: Tree) -> list[str]:
    """`stop_listening` closes a server of asyncio: closed at once, it loses whom it has just accepted."""
    found = re.compile(r"\b_?(?:\w+_)?server\.close\(\)")
    ours = {path: text for path, text in tree.items() if path.startswith("runtime/")}
    return lines_with(ours, found, leave_out=("runtime/deathless/shell/net/listening.py",))


def no_file_is_large(tree: Tree) -> list[str]:
    """What is large is generated or fetched, not committed."""
    return [f"{path}: {len(text)} characters" for path, text in tree.items() if len(text) > FILE_BYTES_MAX]


def tests_do_not_sleep(tree: Tree) -> list[str]:
    """A test waits for what happens; `asyncio.sleep(0)` gives way and is no sleep."""
    found = {}
    for path, text in python(tree, "tests/"):
        for node in ast.walk(parsed(text)):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) not in {"time.sleep", "asyncio.sleep", "sleep"}:
                continue
            if [ast.unparse(argument) for argument in node.args] != ["0"]:
                found[path] = f"{path}:{node.lineno}: {ast.unparse(node)}"
    return against_table(found, SLEEPS, "SLEEPS")


def imports_of_tests_stay_theirs(tree: Tree) -> list[str]:
    """A test module that puts a folder on the module path at import leaves its modules' short names to all others."""
    return [
        f"{path}:{part.lineno}: sys.path changes while this is imported; import through a package, or in a fixture"
        for path, text in python(tree, "tests")
        for statement in parsed(text).body
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        for part in ast.walk(statement)
        if isinstance(part, ast.Attribute) and ast.unparse(part) == "sys.path"
    ]


def tests_are_not_left_out(tree: Tree) -> list[str]:
    """A test that is skipped stands in the table and says why; none is expected to fail."""
    found: dict[str, str] = {}
    hard = []
    for path, text in python(tree, "tests/"):
        for node in ast.walk(parsed(text)):
            name = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
            if name.endswith(("pytest.xfail", "mark.xfail")):
                hard.append(f"{path}: a test is expected to fail")
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
                ("pytest.skip", "mark.skip", "mark.skipif")
            ):
                found[path] = f"{path}:{node.lineno}: leaves tests out"
                if not node.args and not node.keywords:
                    hard.append(f"{path}:{node.lineno}: a skip without a reason")
            elif name.endswith("mark.skip"):
                found[path] = f"{path}: leaves tests out"
    return hard + against_table(found, SKIPS, "SKIPS")


def error_codes(tree: Tree) -> tuple[dict[str, str], list[str]]:
    """Return code -> class for every error class, and the codes given twice."""
    owner: dict[str, str] = {}
    twice = []
    for path, text in python(tree, "runtime/", "operator/"):
        for owning in ast.walk(parsed(text)):
            for node in owning.body if isinstance(owning, ast.ClassDef) else []:
                value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
                if not isinstance(owning, ast.ClassDef) or not isinstance(value, ast.Constant):
                    continue
                if not isinstance(value.value, str) or not CODE.match(value.value) or value.value == ROOT_CODE:
                    continue
                if value.value in owner:
                    twice.append(f"{path}: {value.value} is {owner[value.value]} and {owning.name}")
                owner[value.value] = owning.name
    return owner, twice


def each_error_code_has_a_page(tree: Tree) -> list[str]:
    """Who meets a code finds cause and remedy, and no page speaks of a code that is gone."""
    owner, found = error_codes(tree)
    prefix = "docs/errors/"
    pages = {PurePosixPath(path).stem: text for path, text in tree.items() if path.startswith(prefix)}
    pages.pop("README", None)
    found += [f"{prefix}{code}.md is missing ({name})" for code, name in owner.items() if code not in pages]
    for code, text in pages.items():
        if code not in owner:
            found.append(f"{prefix}{code}.md: no error has this code")
        elif code not in (first := text.partition("\n")[0]) or owner[code] not in first:
            found.append(f"{prefix}{code}.md: its first line names {code} and {owner[code]}")
    return found


def each_cited_design_is_there(tree: Tree) -> list[str]:
    """`design 0003, "Takeover"` names a page of docs/design and a heading on it; no section is cited by its number."""
    pages = {path[12:16]: text for path, text in tree.items() if path.startswith("docs/design/")}
    found = []
    for path, text in python(tree, ""):
        plain = re.sub(r"\n\s*(# )?", " ", text)
        for number, title in re.findall(r'\bdesign (\d{4})(?:, "([^"]+)")?', plain):
            if number not in pages:
                found.append(f"{path}: docs/design has no page {number}")
            elif title and f"\n## {title}\n" not in pages[number]:
                found.append(f"{path}: docs/design/{number} has no heading {title!r}")
        if re.search(r"\b[Dd]esign,? section \d", plain):
            found.append(f"{path}: cites a section by number; cite a heading of docs/design")
    return found


def each_format_has_golden_bytes(tree: Tree) -> list[str]:
    """A page of docs/formats names a version and the golden files that pin it; no golden file is without a page."""
    pages = {path: text for path, text in tree.items() if re.match(r"docs/formats/(?!README).*\.md$", path)}
    golden = {path for path in tree if re.match(r"tests/golden/.*\.(bin|hex)$", path)}
    found, cited = [], set()
    for path, text in pages.items():
        files = set(re.findall(r"tests/golden/[\w./-]+\.(?:bin|hex)", text))
        cited |= files
        if not re.search(r"\bversion[* `:]+\d", text, re.IGNORECASE):
            found.append(f"{path}: names no version")
        if not files:
            found.append(f"{path}: names no golden bytes")
        found += [f"{path}: {name} is missing" for name in sorted(files - golden)]
    return found + [f"{path}: no page of docs/formats names it" for path in sorted(golden - cited)]


def named_tests(text: str) -> list[str]:
    """Return the test files that a text names, as they are written: `tests/.../test_x.py`."""
    return re.findall(r"`(tests/[\w./-]+\.py)`", text)


def each_error_page_names_its_tests(tree: Tree) -> list[str]:
    """The last line of an error's page says which tests make it happen; each of them speaks of the error."""
    found = []
    for path, text in tree.items():
        if not re.match(r"docs/errors/DL\d{4}\.md$", path):
            continue
        last = text.rstrip("\n").rpartition("\n")[2]
        code, _, name = text.partition("\n")[0].removeprefix("# ").partition(" ")
        tests = named_tests(last) if last.startswith("Tested by ") else []
        if not tests:
            found.append(f"{path}: the last line has to be: Tested by `tests/.../test_x.py`.")
        found += [
            f"{path}: {test} names neither {code} nor {name}"
            for test in tests
            if test in tree and not re.search(rf"\b({code}|{name})\b", tree[test])
        ]
    return found


def each_promise_names_its_tests(tree: Tree) -> list[str]:
    """Each row of the promises, and each part of a page that makes some, names the tests that show it."""
    guarantees, storage = tree.get("docs/guarantees.md", ""), tree.get("docs/kubernetes/storage.md", "")
    table = guarantees.partition("| guarantee |")[2].partition("\n\n")[0]
    parts = [("docs/guarantees.md", row) for row in table.split("\n")[2:]]
    parts += [("docs/guarantees.md", part) for part in re.split(r"\n(?=\*\*When )", guarantees)[1:]]
    parts += [("docs/kubernetes/storage.md", part) for part in re.split(r"\n(?=## )", storage)[1:]]
    return [f"{path}: {part[:60]!r} names no test" for path, part in parts if not named_tests(part)]


def named_tests_exist(tree: Tree) -> list[str]:
    """A test that a page names is there."""
    pages = ((path, text) for path, text in tree.items() if path.endswith(".md"))
    return [f"{path}: {test} is gone" for path, text in pages for test in named_tests(text) if test not in tree]


def named_functions_exist(tree: Tree) -> list[str]:
    """A test function that a page names, `tests/.../test_x.py::test_y`, is there; each row of such a page has one."""
    found = []
    for path, text in tree.items():
        if not path.endswith(".md") or "::test_" not in text:
            continue
        named = re.findall(r"`(tests/[\w./-]+\.py)::(\w+)`", text)
        found += [f"{path}: {test}::{name} is gone" for test, name in named if not is_defined(name, tree.get(test, ""))]
        rows = re.findall(r"^\|(?! --- \|).+\|$(?!\n\| ---)", text, re.MULTILINE)
        found += [f"{path}: row {row[:50]!r} names no test function" for row in rows if "::test_" not in row]
    return found


def is_defined(name: str, text: str) -> bool:
    """Whether a module's text has a function of this name."""
    return re.search(rf"^(async )?def {name}\(", text, re.MULTILINE) is not None


def each_switch_is_read(tree: Tree) -> list[str]:
    """A safeguard's switch is read by what really runs; one that nothing reads proves nothing when a test sets it."""
    read = {
        node.attr
        for path, text in python(tree, "runtime/deathless/")
        if path != SWITCHES and not path.startswith("runtime/deathless/simulation/")
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("safeguards")
    }
    switches = {
        node.target.id: node.lineno
        for owner in ast.walk(parsed(tree.get(SWITCHES, "")))
        for node in (owner.body if isinstance(owner, ast.ClassDef) else [])
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return [f"{SWITCHES}:{line}: nothing reads {name}" for name, line in switches.items() if name not in read]


def links_lead_somewhere(tree: Tree) -> list[str]:
    """A relative link of a page leads to a file or folder of the tree."""
    folders = {str(parent) for path in tree for parent in PurePosixPath(path).parents}
    found = []
    for path, text in tree.items():
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if path.endswith(".md") else []:
            if re.match(r"[a-z]+:", target):
                continue
            parts: list[str] = []
            for part in PurePosixPath(path).parent.joinpath(target).parts:
                parts = parts[:-1] if part == ".." else [*parts, part]
            whole = "/".join(parts) or "."
            if whole not in tree and whole not in folders:
                found.append(f"{path}: {target} leads nowhere")
    return found


def map_names_files_that_exist(tree: Tree) -> list[str]:
    """A module or test that ARCHITECTURE.md names is there, below one of the roots that the page gives."""
    found = []
    for path in re.findall(r"`([\w/]+\.(?:py|yaml|toml))`", tree.get("ARCHITECTURE.md", "")):
        tops = (
            ("", "runtime/deathless/", "operator/deathless_operator/") if "/" in path or path.endswith(".toml") else ()
        )
        if tops and not any(f"{top}{path}" in tree for top in tops):
            found.append(f"ARCHITECTURE.md: {path} is not there")
    return found


def each_ignore_has_a_reason(tree: Tree) -> list[str]:
    """A check is silenced for one code, and in what ships the line says why."""
    silent = re.compile(r"#\s*(noqa|type: ignore|pyrefly: ignore|pragma: no cover)")
    reasoned = re.compile(
        r"#\s*(noqa: [A-Z]+\d+(, ?[A-Z]+\d+)*|type: ignore\[[\w, -]+\]|pyrefly: ignore(\[[\w, -]+\])?|pragma: no cover)"
        r"[\s#:(-]+\S+ \S+"
    )
    code = dict(python(tree, "runtime/", "operator/", "lab/", "tools/"))
    return [line for line in lines_with(code, silent) if not reasoned.search(line)]


def fragments_have_a_kind(tree: Tree) -> list[str]:
    """A release fragment is `<number>.<kind>.md`, so that the notes can be put together."""
    name = re.compile(r"^changes/(README\.md|\d+\.(added|changed|fixed|removed|security)\.md)$")
    return [path for path in tree if path.startswith("changes/") and not name.match(path)]


# Each rule, and small trees that break it.
RULES: dict[Rule, list[Tree]] = {
    plain_folders_hold_packages: [
        {"operator/__init__.py": ""},
        {"runtime/__init__.py": ""},
        {"tests/unit/deathless/__init__.py": ""},
    ],
    folders_of_modules_are_packages: [{CORE: ""}],
    modules_open_with_docstring: [{CORE: "x = 1\n"}],
    modules_are_short: [{CORE: "x = 1\n" * 801}],
    functions_are_short: [
        {CORE: "def run():\n" + "    x = 1\n" * 70},
        {CORE: ("def run():\n    'Why.'\n" + "    x = 1\n" * 30) * 10},
    ],
    tests_are_short_sentences: [
        {TEST: "def test_it() -> None: ...\n"},
        {TEST: "def test_a_long_one():\n" + "    x = 1\n" * 40},
    ],
    each_cited_design_is_there: [
        {CORE: "# see desi" + "gn 9999\n"},
        {CORE: "# see desi" + 'gn 0001,\n# "Gone"\n', "docs/design/0001-a.md": "# A\n\n## B\n"},
        {CORE: "# see desi" + "gn section 5\n"},
    ],
    each_module_has_its_test_file: [{CORE: "def run() -> int:\n    return 1\n"}],
    nothing_is_left_for_later: [{CORE: "# TO" + "DO: the rest\n"}],
    no_path_of_one_machine: [{"docs/start.md": "see /ro" + "ot/notes\n"}],
    no_registry_is_named: [{"requirements.txt": "--index" + "-url https://example.invalid\n"}],
    no_file_is_large: [{"docs/start.md": "x" * (FILE_BYTES_MAX + 1)}],
    tests_do_not_sleep: [
        {TEST: "import time\ntime.sleep(0.1)\n"},
        {TEST: "import asyncio\nasync def f(): await asyncio.sleep(1)\n"},
        {TEST: "from time import sleep\nsleep(pause)\n"},
    ],
    imports_of_tests_stay_theirs: [{TEST: "import sys\nsys.path.insert(0, 'examples')\n"}],
    tests_are_not_left_out: [
        {TEST: "import pytest\n@pytest.mark.skip\ndef test_a_b_c(): ...\n"},
        {TEST: "import pytest\npytest.skip('later')\n"},
        {TEST: "import pytest\n@pytest.mark.xfail\ndef test_a_b_c(): ...\n"},
    ],
    servers_end_by_one_function: [{CORE: "self._server.close()\n"}, {CORE: "client_server.close()\n"}],
    each_error_code_has_a_page: [
        {CORE: 'class Gone(Exception):\n    code = "DL1234"\n'},
        {"docs/errors/DL1234.md": "# DL1234 Gone\n"},
        {CORE: 'class Gone(Exception):\n    code = "DL1234"\n', "docs/errors/DL1234.md": "# Another\n"},
        {
            CORE: 'class A(Exception):\n    code = "DL1234"\nclass B(Exception):\n    code = "DL1234"\n',
            "docs/errors/DL1234.md": "# DL1234 A B\n",
        },
    ],
    each_format_has_golden_bytes: [
        {"docs/formats/log.md": "# The log, version 1\n"},
        {"docs/formats/log.md": "version 1: `tests/golden/log_v1.bin`\n"},
        {"tests/golden/log_v1.bin": ""},
    ],
    each_error_page_names_its_tests: [
        {"docs/errors/DL1234.md": "# DL1234 Gone\n\nTested by nobody.\n"},
        {"docs/errors/DL1234.md": f"# DL1234 Gone\n\nTested by `{TEST}`.\n", TEST: "# DL12345 Go\n"},
    ],
    each_promise_names_its_tests: [
        {"docs/guarantees.md": "| guarantee | by |\n| --- | --- |\n| nothing is lost | |\n\nEnd.\n"},
        {"docs/guarantees.md": f"`{TEST}`\n\n**When it rains.** It pours.\n"},
        {"docs/kubernetes/storage.md": f"`{TEST}`\n\n## Room\n\nThere is some.\n"},
    ],
    named_tests_exist: [{"docs/start.md": f"`{TEST}`\n"}],
    named_functions_exist: [
        {"docs/start.md": f"`{TEST}::test_a_b_c`\n"},
        {"docs/start.md": f"`{TEST}::test_a_b_c`\n", TEST: "def test_a_b_d(): ...\n"},
        {
            "docs/start.md": f"| a | b |\n| --- | --- |\n| a | `{TEST}::test_a_b_c` |\n| b | |\n",
            TEST: "def test_a_b_c(): ...\n",
        },
    ],
    each_switch_is_read: [
        {SWITCHES: "class Safeguards:\n    sync: bool = True\n"},
        {SWITCHES: "class Safeguards:\n    sync: bool = True\n", CORE: "if self.other.sync:\n    x = 1\n"},
    ],
    links_lead_somewhere: [{"docs/start.md": "[next](next.md)\n"}, {"docs/start.md": "[up](../../x.md)\n"}],
    each_ignore_has_a_reason: [{CORE: "x = y  # no" + "qa: F821\n"}, {CORE: "x = y  # type: ig" + "nore\n"}],
    map_names_files_that_exist: [{"ARCHITECTURE.md": "see `core/gone.py`\n"}],
    fragments_have_a_kind: [{"changes/news.md": "new\n"}],
}
CASES = [
    pytest.param(rule, tree, id=f"{rule.__name__}-{index}")
    for rule, trees in RULES.items()
    for index, tree in enumerate(trees)
]


@pytest.fixture(scope="module", name="tree")
def tree_of_this_project() -> dict[str, str]:
    """This project's files."""
    return read_tree()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_tree_keeps_rule(rule: Rule, tree: Tree) -> None:
    findings = rule(tree)
    assert not findings, f"{rule.__doc__}\n" + "\n".join(findings)


@pytest.mark.parametrize(("rule", "broken"), CASES)
def test_rule_finds_what_breaks_it(rule: Rule, broken: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    for table in (LONG_TESTS, TESTED_ELSEWHERE, SKIPS, SLEEPS):
        for entry in list(table):
            monkeypatch.delitem(table, entry)
    assert rule(broken)
    assert not rule({})


def test_exception_that_is_no_longer_needed_is_refused() -> None:
    assert against_table({}, {"tests/test_gone.py": "why"}, "SLEEPS") == [
        "tests/test_gone.py: not needed in SLEEPS any more, take it out"
    ]


def test_files_that_would_be_committed_are_seen(tree: Tree) -> None:
    assert {"Makefile", "pyproject.toml", "tests/test_tidy.py", "runtime/deathless/base/errors.py"} <= set(tree)
    assert not [path for path in tree if path.startswith((".venv/", ".git/"))]
