"""Commands of the pages, as they are written: found by page and heading, and run by a shell.

    block("runbooks/conditions.md", "StoreOlderThanLog")      the first block of commands under that heading
    walk(cluster, found, NS=..., SERVICE=...)                 its lines, with the pages' words replaced

A page's block is lines that are indented by four, or fenced as sh, console or bash. One that begins a line with a
program of `PROGRAMS` is a block of commands. `tests/unit/charts/test_pages_walked.py` lists each of the pages that
people follow in trouble: with the test that walks it, or why none does.

Guarantees: a block that ends with an error fails, as does one whose words were not all replaced. Does not: repeat.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from lab.cluster.machine import ROOT, run

DOCS: Final = ROOT / "docs"
PROGRAMS: Final = ("kubectl", "helm", "etcdctl", "deathless", "docker", "curl", "cmctl", "make", "ETCDCTL=", "$ETCDCTL")
_FENCE: Final = re.compile(r"^```(sh|console|bash)\s*$")


@dataclass(frozen=True, slots=True)
class Block:
    """A block of commands."""

    page: str  # below docs/
    heading: str  # the nearest above it
    lines: tuple[str, ...]

    @property
    def script(self) -> str:
        """What a shell is given."""
        return "\n".join(self.lines)

    @property
    def name(self) -> str:
        """How tables call it: page, heading, and its first line."""
        return f"{self.page} / {self.heading} / {self.lines[0][:60].rstrip()}"


def blocks(page: str) -> list[Block]:
    """Give a page's blocks of commands."""
    return [found for found in _every(page) if any(line.startswith(PROGRAMS) for line in found.lines)]


def _every(page: str) -> Iterator[Block]:
    heading, lines, fenced = "", list[str](), False
    for line in [*(DOCS / page).read_text().splitlines(), ""]:
        if fenced:
            if line.startswith("```"):
                fenced = False
            else:
                lines.append(line)
                continue
        elif line.startswith("    ") and not line.lstrip().startswith(("- ", "* ")):
            lines.append(line[4:])
            continue
        if lines:
            yield Block(page, heading, tuple(lines))
            lines = []
        if line.startswith("#"):
            heading = line.lstrip("# ").strip()
        fenced = bool(_FENCE.match(line))


def block(page: str, heading: str, index: int = 0) -> Block:
    """Give a block of commands under a heading."""
    return [found for found in blocks(page) if found.heading == heading][index]


class Reached(Protocol):
    """A cluster, or an API server alone, that kubectl reaches."""

    @property
    def kubeconfig(self) -> Path:
        """Who is asked, and as whom."""

    @property
    def binaries(self) -> Mapping[str, Path]:
        """kubectl, by its name."""


def walk(cluster: Reached, found: Block, **words: str) -> str:
    """Run a block as it is written; gives what it printed.

    Args:
        cluster: on which.
        found: the block.
        words: of the page, each with what it stands for.
    """
    script = found.script
    for word, meant in words.items():
        assert re.search(rf"\b{word}\b", script), f"{found.name} does not say {word}"
        script = re.sub(rf"\b{word}\b", meant, script)
    left = re.findall(r"\b(?:NS|NAMESPACE|SERVICE|ID)\b", script)
    assert not left, f"{found.name}: {left} stands for nothing"
    places = [Path(sys.executable).parent, cluster.binaries["kubectl"].parent, Path(os.environ["PATH"])]
    environment = {"KUBECONFIG": str(cluster.kubeconfig), "PATH": os.pathsep.join(map(str, places))}
    environment["KUBECACHEDIR"] = str(Path(cluster.kubeconfig).parent / "kubectl-cache")  # else one for all servers
    return run("bash", "-euo", "pipefail", "-c", script, environment=environment, timeout_s=600.0)
