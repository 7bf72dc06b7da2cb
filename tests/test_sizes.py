"""A folder fits in a head, and so does a class: at most 20 modules, and at most 15 attributes.

Lines say little: a table is long, and a machine that is cut by its length keeps all its state in both halves. What
grows past these two is named here with its size, and a size that is named may only sink.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
TREES: Final = ("runtime/deathless", "operator/deathless_operator", "bench", "lab", "tools")
MODULES_MAX: Final = 20
ATTRIBUTES_MAX: Final = 15

# Folders with more modules, and why one can still be found at once.
FOLDERS: Final[dict[str, tuple[int, str]]] = {}
# Classes with more attributes.
CLASSES: Final[dict[str, int]] = {
    "operator/deathless_operator/handlers/metrics.py::Metrics": 18,
    "runtime/deathless/core/client/session.py::ClientSession": 21,
    "runtime/deathless/core/primary/admission.py::Admission": 25,
    "runtime/deathless/core/primary/primary.py::Primary": 37,
    "runtime/deathless/core/replica/replica.py::Replica": 26,
    "runtime/deathless/core/supervisor/detection.py::Detector": 17,
    "runtime/deathless/engine/log/segment_writer.py::SegmentWriter": 19,
    "runtime/deathless/engine/replica/replica_engine.py::ReplicaEngine": 19,
    "runtime/deathless/execution/executor.py::HandlerExecutor": 16,
    "runtime/deathless/execution/invocations/all_invocations.py::Invocations": 20,
    "runtime/deathless/execution/invocations/invocation.py::Invocation": 25,
    "runtime/deathless/execution/turn/turn.py::Turn": 17,
    "runtime/deathless/shell/client/shard_client.py::Client": 18,
    "runtime/deathless/shell/ingress/ingress.py::Ingress": 20,
    "runtime/deathless/shell/net/connections.py::ServerConnection": 25,
    "runtime/deathless/shell/web/protocol.py::HttpConnection": 20,
    "runtime/deathless/shell/worker/worker.py::Worker": 24,
    "runtime/deathless/simulation/nodes/cluster.py::Cluster": 16,
    "runtime/deathless/simulation/nodes/replica_node.py::ReplicaNode": 27,
    "runtime/deathless/simulation/nodes/replica_node.py::Shared": 17,
    "runtime/deathless/simulation/nodes/worker_node.py::WorkerNode": 16,
    "runtime/deathless/simulation/workload/client_node.py::ClientNode": 20,
}


def modules(files: Mapping[str, str]) -> dict[str, int]:
    """Count the modules of each folder."""
    return dict(Counter(str(PurePosixPath(path).parent) for path in files if not path.endswith("__init__.py")))


def attributes(files: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Yield path::Class and how many attributes its methods assign on `self`."""
    for path, text in files.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                assigned = {
                    each.attr
                    for method in node.body
                    if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
                    for each in ast.walk(method)
                    if isinstance(each, ast.Attribute)
                    and isinstance(each.ctx, ast.Store)
                    and isinstance(each.value, ast.Name)
                    and each.value.id == "self"
                }
                yield f"{path}::{node.name}", len(assigned)


def against(sizes: Mapping[str, int], named: Mapping[str, int], limit: int) -> list[str]:
    """Name what is larger than it may be, and sizes named here that have sunk."""
    found = [f"{name}: {size}, at most {named.get(name, limit)}" for name, size in sizes.items()]
    over = [line for line, (name, size) in zip(found, sizes.items(), strict=True) if size > named.get(name, limit)]
    sunk = [
        f"{name}: {sizes.get(name, 0)} now, write that in place of {size}, or nothing if it is at most {limit}"
        for name, size in named.items()
        if sizes.get(name, 0) < size
    ]
    return over + sunk


@pytest.fixture(name="files", scope="module")
def sources() -> dict[str, str]:
    """Every module of the product and its tools: path -> text."""
    return {
        path.relative_to(ROOT).as_posix(): path.read_text()
        for tree in TREES
        for path in sorted((ROOT / tree).rglob("*.py"))
    }


def test_a_folder_has_no_more_modules_than_can_be_overlooked(files: dict[str, str]) -> None:
    assert against(modules(files), {folder: size for folder, (size, _) in FOLDERS.items()}, MODULES_MAX) == []


def test_a_class_has_no_more_attributes_than_can_be_overlooked(files: dict[str, str]) -> None:
    assert against(dict(attributes(files)), CLASSES, ATTRIBUTES_MAX) == []


def test_what_is_too_large_is_named_and_so_is_a_size_that_has_sunk() -> None:
    assert against({"a": 3, "b": 2}, {}, 2) == ["a: 3, at most 2"]
    assert against({"a": 4}, {"a": 3}, 2) == ["a: 4, at most 3"]
    assert against({"a": 3}, {"a": 3}, 2) == []
    assert against({"a": 2}, {"a": 3}, 2) == ["a: 2 now, write that in place of 3, or nothing if it is at most 2"]
    assert modules({"x/a.py": "", "x/b.py": "", "x/__init__.py": "", "y/c.py": ""}) == {"x": 2, "y": 1}
    text = "class A:\n    def f(self):\n        self.x = self.y = 1\n        self.z: int = 2\n        self.x += 1\n"
    assert list(attributes({"a.py": text})) == [("a.py::A", 3)]
