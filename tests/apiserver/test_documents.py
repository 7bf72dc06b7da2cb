"""What the documents and examples tell people to apply and to type is taken by a real API server and a real kubectl."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from real_api_server import RealApiServer, binaries
from tests.unit.tools.commands import PAGES, ROOT, Line, commands

from deathless_operator.cluster.kinds import SERVICE, kind_of

pytestmark = pytest.mark.apiserver
# Their manifests without an image are for one machine: a cluster asks for an image and a volume.
LAPTOP = {"docs/quick-start.md", "docs/callers.md", "docs/pipelines.md"}
# What our plugin adds to kubectl.
OURS = "deathless"


def blocks() -> Iterator[tuple[str, str]]:
    """Yield (page, text) of every block of code, indented or fenced, and of every example."""
    for path in PAGES:
        text = path.read_text()
        page = str(path.relative_to(ROOT))
        for found in re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            yield page, found
        for found in re.findall(r"(?:^    .*\n|^\n)+", text, re.MULTILINE):
            yield page, textwrap.dedent(found)
    for path in sorted((ROOT / "examples/kubernetes").glob("*.yaml")):
        yield str(path.relative_to(ROOT)), path.read_text()


def manifests() -> list[tuple[str, dict[str, Any]]]:
    """Return (page, manifest) of every whole object of our kinds."""
    found = []
    for page, block in blocks():
        here = re.search(r"<<EOF\n(.*?)^EOF", block, re.MULTILINE | re.DOTALL)
        try:
            documents = list(yaml.safe_load_all(here[1] if here else block))
        except yaml.YAMLError:
            continue  # no YAML
        ours = [each for each in documents if isinstance(each, dict) and is_ours(each)]
        found += [(page, each) for each in ours if page not in LAPTOP or "image" in each["spec"]]
    return found


def is_ours(manifest: dict[str, Any]) -> bool:
    return str(manifest.get("apiVersion", "")).startswith("deathless.dev/")


def specs() -> list[tuple[str, dict[str, Any]]]:
    """Return (page, spec) of every piece that shows a part of a service's spec alone."""
    found = []
    for page, block in blocks():
        try:
            piece = yaml.safe_load(block)
        except yaml.YAMLError:
            continue
        if isinstance(piece, dict) and set(piece) == {"spec"}:
            found.append((page, piece["spec"]))
    return found


def dry_run(server: RealApiServer, namespace: str, manifest: dict[str, Any]) -> dict[str, Any]:
    kind = kind_of(manifest)
    path = f"{kind.path(namespace)}?dryRun=All&fieldValidation=Strict"
    answer: dict[str, Any] = json.loads(server.request("POST", path, manifest, raw=True))
    return answer


def test_manifests_are_found() -> None:
    assert {page for page, _ in manifests()} >= {
        "docs/kubernetes/first-service.md",
        "docs/kubernetes/drills.md",
        "examples/kubernetes/bank.yaml",
        "examples/kubernetes/drill.yaml",
    }
    assert {page for page, _ in specs()} >= {"docs/kubernetes/storage.md", "docs/kubernetes/certificates.md"}


@pytest.mark.parametrize(("page", "manifest"), manifests())
def test_manifest_is_taken(page: str, manifest: dict[str, Any], api_server: RealApiServer, namespace: str) -> None:
    answer = dry_run(api_server, namespace, manifest)
    assert answer["kind"] == manifest["kind"], f"{page}: {answer}"


@pytest.mark.parametrize(("page", "spec"), specs())
def test_piece_of_a_spec_is_taken(page: str, spec: dict[str, Any], api_server: RealApiServer, namespace: str) -> None:
    code = {} if "binding" in spec else {"module": "bank:bank"}
    whole = {**code, "image": "bank:1", "logStorage": {"size": "1Gi"}} | spec
    manifest = {"apiVersion": SERVICE.api_version, "kind": SERVICE.kind, "metadata": {"name": "bank"}, "spec": whole}
    answer = dry_run(api_server, namespace, manifest)
    assert answer["kind"] == SERVICE.kind, f"{page}: {answer}"


@functools.cache
def help_of(*words: str) -> str:
    """Return what kubectl tells about a command."""
    done = subprocess.run(
        [str(binaries("kubectl")["kubectl"]), *words], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def typed() -> list[Line]:
    """Return every line of kubectl that is no line of our plugin."""
    lines = [line for line in commands("kubectl") if line.words and OURS not in line.words[:1]]
    return [line for line in lines if any(not word.startswith("-") for word in line.words)]


@pytest.mark.parametrize("line", typed(), ids=str)
def test_options_of_kubectl_are_known_to_it(line: Line) -> None:
    words = list(line.words)
    while words and words[0].startswith("-"):
        del words[: 2 if words[0] in ("-n", "--namespace", "--kubeconfig") else 1]
    command = [words[0]]
    if words[0] in ("create", "rollout"):
        command.append(words[1])
        if words[1] == "secret":
            command.append(words[2])
    told = help_of(*command, "--help") + help_of("options")
    for option in line.options:
        known = rf"(^|\s){re.escape(option)}[=,\s]"
        assert re.search(known, told, re.MULTILINE), f"{line}: {option}"
