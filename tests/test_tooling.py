"""The tools that guard the tree are awake: each is shown a fault and must find it.

Why: a contract whose name has a typing error, or a rule lifted for one folder too many, stays green for ever.
What is planted: forbidden imports in a pure layer, an import in the wrong direction, a new layer without a
place, a union without one of its cases, a dependency that is declared but not locked.

Does not: ask a package index. `make lock-check` resolves anew and compares; here the lock is only held against
what is declared and installed.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import stat
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
RUNTIME = ROOT / "runtime" / "deathless"


def run(*command: str, cwd: Path = ROOT, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a tool of this environment and return what it said."""
    environment = os.environ | {"NO_COLOR": "1", "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(command, cwd=cwd, input=text, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(name="tree")
def small_tree(tmp_path: Path) -> Path:
    """A copy of the settings over a package that has every module and no code."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for found in RUNTIME.rglob("*.py"):
        module = tmp_path / "runtime/deathless" / found.relative_to(RUNTIME)
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text('"""A module."""\n')
    return tmp_path


def lint_imports(tree: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter over the small tree, and not over the package that is installed."""
    paths = f"import sys; sys.path.insert(0, {str(tree / 'runtime')!r}); "
    call = "from importlinter.cli import lint_imports_command; lint_imports_command(['--no-cache'])"
    return run(sys.executable, "-c", paths + call, cwd=tree)


def test_empty_layers_keep_all_contracts(tree: Path) -> None:
    done = lint_imports(tree)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("layer", ["base", "codec", "core", "execution", "protocols"])
@pytest.mark.parametrize("module", ["asyncio", "socket", "time", "random", "os", "uuid", "logging"])
def test_pure_layer_that_imports_the_outside_world_is_refused(layer: str, module: str) -> None:
    name = f"runtime/deathless/{layer}/planted.py"
    text = f'"""Planted."""\n\nimport {module}\n\nprint({module})\n'
    done = run("ruff", "check", "--no-cache", "--stdin-filename", name, "-", text=text)
    assert "TID251" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("core/roles.py", "import time"),
        ("execution/turns.py", "import random"),
        ("codec/frames.py", "import os"),
        ("base/ids.py", "import uuid"),
        ("protocols/connector/frames.py", "import asyncio"),
        ("protocols/connector/frames.py", "import deathless.core"),
        ("protocols/connector/frames.py", "import deathless.protocols.connector.source_worker"),
        ("engine/loop.py", "import time"),
        ("core/roles.py", "import deathless.engine"),
        ("core/roles.py", "import deathless.execution"),
        ("core/roles.py", "import deathless.protocols"),
        ("execution/turns.py", "import deathless.core"),
        ("base/ids.py", "import deathless.codec"),
        ("shell/files.py", "import deathless.simulation"),
        ("engine/loop.py", "import deathless.shell"),
        ("sdk/client.py", "import deathless.cli"),
        ("engine/loop.py", "import msgspec, rich"),
        ("shell/net/connections.py", "import deathless.core.primary.primary"),
        ("shell/supervisor/supervisor.py", "import yaml"),
        ("shell/worker/worker.py", "import deathless.base.manifest"),
        ("shell/net/ports.py", "import deathless.shell.client"),
        ("shell/worker/errands.py", "import deathless.shell.supervisor"),
        ("shell/novelty/__init__.py", "x = 1"),
        ("novelty/__init__.py", "x = 1"),
    ],
)
def test_import_against_the_direction_is_refused(tree: Path, where: str, line: str) -> None:
    planted = tree / "runtime/deathless" / where
    planted.parent.mkdir(exist_ok=True)
    planted.write_text(f'"""Planted."""\n{line}\n')
    done = lint_imports(tree)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "BROKEN" in done.stdout or "novelty" in done.stdout + done.stderr


@pytest.mark.parametrize("checker", [("mypy", "--no-incremental"), ("pyrefly", "check")], ids=["mypy", "pyrefly"])
def test_match_that_forgets_a_case_is_refused_by_both_checkers(tree: Path, checker: tuple[str, str]) -> None:
    for folder in ("bench", "examples", "lab", "operator", "tests", "tools"):
        (tree / folder).mkdir(exist_ok=True)
        (tree / folder / f"empty_{folder}.py").write_text('"""Empty."""\n')
    text = (
        '"""Planted."""\n\nfrom typing import assert_never\n\n\ndef run(event: int | str) -> int:\n'
        "    match event:\n        case int():\n            return event\n"
    )
    (tree / "runtime/deathless/core/roles.py").write_text(text + "        case _:\n            assert_never(event)\n")
    done = run(*checker, cwd=tree)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "assert_never" in done.stdout


def test_module_named_like_the_standard_library_is_refused() -> None:
    done = run(
        "ruff", "check", "--no-cache", "--stdin-filename", "runtime/deathless/core/types.py", "-", text='"""A."""\n'
    )
    assert "A005" in done.stdout


# ---------------------------------------------------------------- the lock


ALONE = ("pyspark", "confluent-kafka")
"""What is installed beside the environment, by those who test with it; see below."""


def declared() -> list[Requirement]:
    """Return every requirement of pyproject.toml: run time, extras, development, build."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lists = [settings["project"]["dependencies"], settings["build-system"]["requires"]]
    extras = settings["project"]["optional-dependencies"]
    lists += [[text for text in extras[name] if not text.startswith(ALONE)] for name in extras]
    lists += settings["dependency-groups"].values()
    return [Requirement(text) for several in lists for text in several]


def locked(text: str) -> dict[str, str]:
    """Return name -> version of a requirements file; each pin must carry hashes."""
    pins: dict[str, str] = {}
    for block in re.split(r"\n(?=\S)", text.strip()):
        match = re.match(r"([A-Za-z0-9._-]+)==(\S+)", block)
        assert match, f"not a pin: {block.splitlines()[0]}"
        assert "--hash=sha256:" in block, f"{match[1]} has no hash"
        pins[canonicalize_name(match[1])] = match[2]
    return pins


def lock_findings(requirements: list[Requirement], pins: dict[str, str]) -> list[str]:
    """Return what is declared and not locked, locked in a version that is refused, or locked for nobody."""
    found = []
    reached: set[str] = set()
    waiting = list(requirements)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        optional = "extra ==" in str(requirement.marker)  # of somebody else's: nobody asked for it
        if name in pins and not optional and not requirement.specifier.contains(pins[name], prereleases=True):
            found.append(f"{requirement} is locked as {pins[name]}")
        if name in reached:
            continue
        if name not in pins:
            found.append(f"{requirement} is not locked")
            continue
        reached.add(name)
        try:
            further = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # a pin for another platform; what it needs can't be known here
        # Optional and foreign parts count only where they are locked; markers are the resolver's to judge.
        waiting += [need for text in further if canonicalize_name((need := Requirement(text)).name) in pins]
    return found + [f"{name} is locked for nobody" for name in sorted(set(pins) - reached)]


def test_lock_holds_what_is_declared_and_nothing_else() -> None:
    assert lock_findings(declared(), locked((ROOT / "requirements.txt").read_text())) == []


@pytest.mark.parametrize(
    ("extra", "package", "with_it"), [("spark", "pyspark", {"py4j"}), ("kafka", "confluent-kafka", set())]
)
def test_what_is_installed_beside_the_environment_is_pinned_by_itself(
    extra: str, package: str, with_it: set[str]
) -> None:
    pins = locked((ROOT / f"requirements-{extra}.txt").read_text())
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [wanted] = [Requirement(text) for text in extras[extra] if text.startswith(package)]
    assert pins.keys() == {package} | with_it
    assert wanted.specifier.contains(pins[package])
    assert not pins.keys() & locked((ROOT / "requirements.txt").read_text()).keys()


def test_lock_that_misses_a_requirement_is_refused() -> None:
    pins = locked((ROOT / "requirements.txt").read_text())
    assert lock_findings([*declared(), Requirement("absent-package>=1")], pins) == ["absent-package>=1 is not locked"]
    assert lock_findings([*declared(), Requirement("msgspec>=99")], pins)
    assert lock_findings(declared(), pins | {"left-over": "1.0"}) == ["left-over is locked for nobody"]
    with pytest.raises(AssertionError, match="no hash"):
        locked("click==8.5.1\n")


def test_lock_is_installed_without_resolving_or_somebodys_release_day_breaks_it() -> None:
    """A release of coverage did: pytest-cov asks for `coverage[toml]`, and pip took the newest, which had no hash."""
    text = "".join((ROOT / name).read_text().replace("\\\n", " ") for name in ("Makefile", "Dockerfile"))
    installs = [line for line in text.splitlines() if "--require-hashes" in line]
    assert len(installs) >= 2
    assert not [line for line in installs if line.count("--require-hashes") != line.count("--no-deps")]


def test_environment_that_runs_the_tests_is_the_locked_one() -> None:
    pins = locked((ROOT / "requirements.txt").read_text())
    installed: dict[str, str] = {
        canonicalize_name(item.name): item.version for item in importlib.metadata.distributions()
    }
    assert {name: installed[name] for name in pins if name in installed} == {
        name: version for name, version in pins.items() if name in installed
    }


# ---------------------------------------------------------------- make


def test_every_target_of_make_help_exists() -> None:
    listed = re.findall(r"make ([a-z-]+)", run("make", "--no-print-directory", "help").stdout)
    assert {"install", "demo", "test", "lint", "sim", "bench", "clean", "help"} <= set(listed)


def test_continuous_integration_script_is_sound() -> None:
    script = ROOT / ".ci/run"
    assert run("bash", "-n", str(script)).returncode == 0
    assert stat.S_IMODE(script.stat().st_mode) & stat.S_IRUSR


@pytest.mark.parametrize(
    ("made", "gone_s", "last"),
    [
        ("all passed", 0, "Everything passed."),
        ("etcd tests left out: no Go", 0, "Passed, but not everything was run: etcd tests left out: no Go"),
        ("tests left out: 3", 3_000, "Passed, but not everything was run: tests left out: 3"),
    ],
)
def test_last_line_of_continuous_integration_names_what_was_left_out(
    tmp_path: Path, made: str, gone_s: int, last: str
) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    fake = tmp_path / "make"
    fake.write_text(f"#!/bin/sh\necho '{made}'\n")
    fake.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SECONDS": str(gone_s)}
    done = subprocess.run(
        ["bash", ".ci/run"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1].startswith(last)


def test_continuous_integration_tells_every_step_when_no_test_is_to_be_begun_any_more(tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    fake = tmp_path / "make"
    fake.write_text('#!/bin/sh\necho "$1 ends at ${TESTS_END_AT:-never}, seeds ${SEEDS:-2000}"\n')
    fake.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment.pop("TESTS_END_AT", None)
    environment.pop("SEEDS", None)
    before = int(time.time())
    done = subprocess.run(
        ["bash", ".ci/run"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    told = re.findall(r"^(\S+) ends at (\S+), seeds (\d+)$", done.stdout, re.MULTILINE)
    assert {step: seeds for step, _, seeds in told}["test"] == "1000"
    ends = {step: at for step, at, _ in told}
    assert ends.keys() == {"test", "demo", "torture", "test-cluster"}
    assert len(set(ends.values())) == 1
    assert before <= int(ends["test"]) - 78 * 60 <= time.time()


def test_nothing_is_built_for_a_cluster_whose_tests_would_not_begin() -> None:
    """An image and Kubernetes take longer than what is left of the time then."""
    environment = os.environ | {"TESTS_END_AT": "1"}
    command = ["make", "--silent", "--old-file=install", "test-cluster", "BIN=/nowhere"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0] == "cluster and API server left out: the time for tests (TESTS_END_AT) is over"


@pytest.mark.parametrize("processes", [[], ["-n", "1"]], ids=["in this process", "in others"])
def test_tests_that_are_not_begun_in_time_are_counted(processes: list[str]) -> None:
    environment = os.environ | {"TESTS_END_AT": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *processes, "tests/test_long.py"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert re.search(r"^tests left out: \d+ from tests/test_long.py::", done.stdout, re.MULTILINE), done.stdout
