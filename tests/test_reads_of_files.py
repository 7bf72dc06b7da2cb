"""Whoever reads a file reads it up to a limit, and never waits for a pipe: `shell.disk.small_files` does both.

A name in a directory that several share says nothing of what stands behind it. Does not: judge reads at an offset, of a
file that is open already.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
TREES: Final = ("runtime/deathless", "operator/deathless_operator")

KERNEL = "the kernel's or the system's own file"
CODE = "source code and what pip wrote beside it: it is about to be run as well"
NAMED = "the user, or who deployed us, named this file to just this process"
ITS_OWN = "it stands in a folder that this process has made for itself, below the temporary one"
PART = "opened to read so many bytes, or line by line"

REVIEWED: Final = {
    "runtime/deathless/cli/ambrosia/launchers.py": (1, PART),
    "runtime/deathless/cli/look/explain.py": (2, "pages of this package, or of the sources that run"),
    "runtime/deathless/cli/look/log_file.py": (1, NAMED),
    "runtime/deathless/cli/change/calls.py": (1, NAMED),
    "runtime/deathless/cli/demo/upgrades.py": (1, CODE),
    "runtime/deathless/drivers/files.py": (1, PART),
    "runtime/deathless/drivers/port.py": (1, NAMED),
    "runtime/deathless/sinks/clickhouse/store.py": (1, NAMED),
    "runtime/deathless/sinks/postgresql.py": (1, NAMED),
    "runtime/deathless/sources/files.py": (4, PART),
    "runtime/deathless/shell/service_code/check/run.py": (1, CODE),
    "runtime/deathless/shell/service_code/check/compare.py": (
        2,
        "the kernel's file, and what our own child wrote for us",
    ),
    "runtime/deathless/shell/lock_stores/etcd/opening.py": (1, NAMED),
    "runtime/deathless/shell/lock_stores/etcd/settings.py": (1, NAMED),
    "runtime/deathless/shell/disk/filesystem.py": (1, KERNEL),
    "runtime/deathless/shell/service_code/description.py": (1, CODE),
    "runtime/deathless/shell/service_code/fingerprint.py": (2, CODE),
    "runtime/deathless/shell/service_code/kept_code.py": (
        2,
        "as `modules_in` has just read it, and what it stands for",
    ),
    "runtime/deathless/shell/service_code/kept_import.py": (1, CODE),
    "runtime/deathless/shell/ingress/pages.py": (1, "a file of this package, by a name that stands in the module"),
    "runtime/deathless/shell/pod/kubernetes_api.py": (1, NAMED),
    "runtime/deathless/shell/operate/log_export.py": (1, PART),
    "runtime/deathless/shell/operate/log_history.py": (1, PART),
    "runtime/deathless/shell/link/machine_clock.py": (1, KERNEL),
    "runtime/deathless/shell/operate/manifest_file.py": (2, NAMED),
    "runtime/deathless/shell/link/status_page.py": (
        2,
        "the kernel's file, and our own user's pages in memory, so many bytes",
    ),
    "runtime/deathless/shell/directory/place.py": (1, KERNEL),
    "runtime/deathless/shell/pod/pod_config.py": (1, NAMED),
    "runtime/deathless/shell/operate/replica_log.py": (3, PART),
    "runtime/deathless/shell/service_code/sources.py": (2, CODE),
    "runtime/deathless/shell/net/tls.py": (2, NAMED),
    "runtime/deathless/shell/upgrade/former.py": (1, "what our own child wrote for us, at offsets"),
    "runtime/deathless/spark/checkpoint.py": (2, ITS_OWN),
    "runtime/deathless/spark/sink.py": (3, ITS_OWN),
    "runtime/deathless/shell/process/turn_guards.py": (1, KERNEL),
    "operator/deathless_operator/cli/drill_run.py": (1, NAMED),
    "operator/deathless_operator/cluster/connection.py": (3, NAMED),
    "operator/deathless_operator/cluster/kubeconfig.py": (2, NAMED),
    "operator/deathless_operator/drill/guardian.py": (1, KERNEL),
    "operator/deathless_operator/drill/processes.py": (5, KERNEL),
}
"""How many such reads a module has, and why they may be there."""


def reads(module: ast.Module) -> Iterator[ast.Call]:
    """Give the calls that read a whole file by its path, or open one to be read."""
    for found in ast.walk(module):
        if not isinstance(found, ast.Call):
            continue
        called = found.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        modes = [each.value for each in found.args if isinstance(each, ast.Constant)]
        by_path = isinstance(called, ast.Attribute) and name == "open" and modes == ["rb"]
        if name in {"read_text", "read_bytes"} or by_path or (isinstance(called, ast.Name) and modes == ["rb"]):
            yield found


def test_every_other_read_of_a_file_is_in_the_table_with_its_reason() -> None:
    found: Counter[str] = Counter()
    for tree in TREES:
        for path in sorted((ROOT / tree).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if "/simulation/" not in name:
                found[name] = sum(1 for _ in reads(ast.parse(path.read_text(encoding="utf-8"))))
    assert {name: count for name, count in found.items() if count} == {
        name: count for name, (count, _) in REVIEWED.items()
    }
