"""Reads a manifest from YAML and names every mistake by file, line, column, field, value and remedy.

YAML means different things to different readers: `no` is a text to one and false to the next, `012` is 12 or 10, of
two equal keys the last one wins without a word. The same manifest goes to `deathless up` and to `kubectl apply`, so
what two readers could read differently is refused here, with what to write instead. Plain values are read as YAML 1.2
(core schema) does: null, true, false, whole numbers, numbers, texts.

Guarantees: what `read_manifest` gives fits the schema, and paths in it are absolute; several mistakes are told
together. A file that is huge, nested too deep, or refers to itself is refused, not followed (I10). Does not: start
anything, look into the module. May import base, yaml.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Final, NamedTuple

import msgspec
import yaml

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidManifest, PermissionRefused
from deathless.base.limits import NESTING_MAX
from deathless.base.lock_stores.settings import FindFile
from deathless.base.manifest import (
    API_VERSION,
    KIND,
    Manifest,
    ServiceSpec,
    ignored_locally,
    least_volume,
    relation_problems,
    replica_configs,
)
from deathless.base.manifest_ingress import Ingress
from deathless.base.manifest_parts import LockSpec, PeerService, TlsSpec
from deathless.base.pipelines.agents import AgentConfig
from deathless.base.pipelines.manifest import (
    PIPELINE_KIND,
    SparkPipeline,
    agent_configs,
    ignored_of_pipelines,
    pipeline_problems,
    service_manifest,
)
from deathless.base.schema_check import Path, Problem, find_problems, show_path

MANIFEST_BYTES_MAX: Final = 1 << 20
DEPTH_MAX: Final = 50
VALUES_MAX: Final = 50_000

_TWO_READINGS: Final = (
    (re.compile(r"y|Y|yes|Yes|YES|on|On|ON"), "true to some readers and a text to others", "write true, or quote it"),
    (re.compile(r"n|N|no|No|NO|off|Off|OFF"), "false to some readers and a text to others", "write false, or quote it"),
    (
        re.compile(r"[-+]?0[0-9_]+"),
        "octal to some readers and decimal to others",
        "leave the leading 0 out, or quote it",
    ),
    (re.compile(r"[-+]?[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?"), "a number to base 60 to some readers", "quote it"),
    (
        re.compile(r"[-+]?(?=[0-9_]*_)[0-9][0-9_]*(\.[0-9_]*)?"),
        "a number to some readers and a text to others",
        "leave the _ out, or quote it",
    ),
    (re.compile(r"[-+]?0[bB][01_]+"), "binary to some readers and a text to others", "write it decimal, or quote it"),
)
_NULL: Final = re.compile(r"~|null|Null|NULL|")
_TRUE: Final = re.compile(r"true|True|TRUE")
_FALSE: Final = re.compile(r"false|False|FALSE")
_INT: Final = re.compile(r"[-+]?[0-9]+")
_HEX: Final = re.compile(r"0x[0-9a-fA-F]+")
_OCTAL: Final = re.compile(r"0o[0-7]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


class Mark(NamedTuple):
    """A place in the file, both counted from 1."""

    line: int
    column: int


class ManifestProblem(NamedTuple):
    """One mistake with its place."""

    mark: Mark
    problem: Problem

    def show(self, path: str) -> str:
        """Give it as one line: file:line:column: field: what; remedy."""
        place = f"{path}:{self.mark.line}:{self.mark.column}"
        return ": ".join(
            filter(None, (place, show_path(self.problem.path), f"{self.problem.what}; {self.problem.remedy}"))
        )


class BrokenManifest(InvalidManifest):
    """A manifest with its mistakes, ordered by place."""

    def __init__(self, path: str, problems: list[ManifestProblem]) -> None:
        lines = [problem.show(path) for problem in problems]
        super().__init__("\n".join(lines), remedy="" if len(lines) == 1 else f"correct these {len(lines)} places")
        self.problems = problems


@dataclass(frozen=True, slots=True)
class LoadedManifest:
    """A manifest that is in order, and what is to be known about the file."""

    manifest: Manifest
    path: FilePath  # of the file, absolute
    module: str  # spec.module with an absolute path
    directory: FilePath  # the service's folder, absolute
    token: str  # content of spec.tokenFile, stripped
    peer_tokens: dict[str, str]  # the same of each peer that names one
    notes: tuple[str, ...]  # fields that have no effect here
    operator_token: str = ""  # content of spec.operatorTokenFile, stripped
    pipeline: SparkPipeline | None = None  # the document, where it is a pipeline's; `manifest` is that of its service
    pipeline_module: str = ""  # its spec.module with an absolute path

    @property
    def name(self) -> str:
        """The service's name."""
        return self.manifest.metadata.name

    @property
    def folder(self) -> FilePath:
        """The folder that relative paths start from."""
        return self.path.parent

    @property
    def least_volume(self) -> str:
        """The size below which the log's volume does not carry the service, before it has any state."""
        return least_volume(self.manifest.spec)

    def replica_configs(self) -> list[ReplicaConfig]:
        """Give each replica's config, shard by shard."""
        return replica_configs(
            self.manifest,
            module=self.module,
            directory=str(self.directory),
            token=self.token,
            peer_tokens=self.peer_tokens,
            folder=str(self.folder),
            operator_token=self.operator_token,
        )

    def agent_configs(self) -> list[AgentConfig]:
        """Give the config of each agent of a pipeline's drivers; none: it is no pipeline."""
        if self.pipeline is None:
            return []
        token, beside = self.pipeline.spec.token_file, self.directory.parent
        folders = {
            each.name: os.path.normpath(self.folder / each.path if each.path else beside / each.name)
            for each in self.pipeline.spec.services
        }
        return agent_configs(
            self.pipeline,
            module=self.pipeline_module,
            directory=str(self.directory),
            beside=str(beside),
            folder=str(self.folder),
            folders=folders,
            token_file=str(self.folder / token) if token else "",
        )


def read_manifest(path: str | FilePath) -> LoadedManifest:
    """Read a manifest: of a service, or of a pipeline, which has one.

    Raises: InvalidManifest with all places; PermissionRefused. The caller shows it and ends.
    """
    shown = str(path)
    reader = _Reader(shown)
    tree = reader.read(_read_text(shown))
    known = {found.problem.path for found in reader.problems}
    is_pipeline = isinstance(tree, dict) and tree.get("kind") == PIPELINE_KIND
    model: type[SparkPipeline | Manifest] = SparkPipeline if is_pipeline else Manifest
    problems = [found for found in find_problems(tree, model) if found.path not in known]
    if not problems and not known:
        loaded, problems = _load(msgspec.convert(tree, model), FilePath(shown).absolute())
        if loaded is not None:
            return loaded
    placed = [*reader.problems, *_placed(problems, reader.marks)]
    raise BrokenManifest(shown, sorted(placed, key=lambda found: found.mark))


def _load(document: Manifest | SparkPipeline, path: FilePath) -> tuple[LoadedManifest | None, list[Problem]]:
    """Give what fits the schema with all that stands in files, or what is wrong with it."""
    if isinstance(document, Manifest):
        problems = relation_problems(document)
        loaded = None
        if not problems:
            loaded, problems = _resolve(document, path)
        return (None if problems else loaded), problems
    problems = pipeline_problems(document)
    if problems:
        return None, problems
    loaded, problems = _resolve(service_manifest(document), path)
    module = _absolute_module(path.parent, document.spec.module, problems)
    # The service's peers are some of the services that the document names, in the same order.
    problems = [_of_services(found, document) for found in problems]
    notes = tuple(f"{name} has no effect on this machine" for name in ignored_of_pipelines(document))
    whole = replace(loaded, pipeline=document, pipeline_module=module, notes=loaded.notes + notes)
    return (None if problems else whole), problems


def _of_services(found: Problem, document: SparkPipeline) -> Problem:
    """Give a mistake in the service's document at its place in the pipeline's."""
    if found.path[:2] != ("spec", "peers"):
        return found
    peer = service_manifest(document).spec.peers[int(found.path[2])]
    names = [each.name for each in document.spec.services]
    return found._replace(path=("spec", "services", names.index(peer.name), *found.path[3:]))


def _placed(problems: list[Problem], marks: dict[Path, Mark]) -> list[ManifestProblem]:
    placed = []
    for problem in problems:
        at = problem.path
        while at and at not in marks:
            at = at[:-1]
        placed.append(ManifestProblem(marks.get(at, Mark(1, 1)), problem))
    return placed


def _read_text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(MANIFEST_BYTES_MAX + 1)
    except FileNotFoundError:
        raise InvalidManifest(
            f"{path}: there is no such file",
            remedy="name the manifest: -f PATH, or run `deathless demo`, which needs none",
        ) from None
    except IsADirectoryError:
        raise InvalidManifest(f"{path}: is a folder", remedy="name the manifest in it: -f PATH") from None
    except PermissionError:
        raise PermissionRefused(f"{path}: may not be read by this user") from None
    except OSError as error:
        raise InvalidManifest(f"{path}: {error.strerror}") from None
    if len(data) > MANIFEST_BYTES_MAX:
        raise InvalidManifest(
            f"{path}: is larger than {MANIFEST_BYTES_MAX} bytes", remedy="check that it is a manifest"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidManifest(
            f"{path}:{line}:1: byte {error.start} is not UTF-8", remedy="save the file as UTF-8"
        ) from None


class _Reader:
    """Turns YAML nodes into plain values and notes where each stands."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.marks: dict[Path, Mark] = {}
        self.problems: list[ManifestProblem] = []
        self._values = 0

    def read(self, text: str) -> object:
        """Give the document's value; `problems` are what two readers could read differently.

        Raises: InvalidManifest when nothing can be made of it.
        """
        return self._value(self._choose(self._compose(text)), (), 0)

    def _compose(self, text: str) -> list[yaml.Node]:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            self._check_depth(yaml.parse(text, Loader=loader))
            return list(yaml.compose_all(text, Loader=loader))
        except yaml.MarkedYAMLError as error:
            at = error.problem_mark
            mark = Mark(at.line + 1, at.column + 1) if at is not None else Mark(1, 1)
            what = f"can't be read: {error.problem or error.context}"
        except (yaml.YAMLError, RecursionError) as error:
            mark, what = Mark(1, 1), f"can't be read: {error}".splitlines()[0]
        line = "".join(text.splitlines()[mark.line - 1 : mark.line])  # none at the end of the file
        tabbed = "\t" in line[: len(line) - len(line.lstrip())]
        remedy = "indent with spaces, not tabs" if tabbed else "mend the YAML at this place"
        raise BrokenManifest(self.path, [ManifestProblem(mark, Problem((), None, what, remedy))])

    def _check_depth(self, events: Iterable[yaml.Event]) -> None:
        """Refuse what is nested too deep before nodes are made: libyaml's are made by a recursion that nothing bounds.

        Raises: BrokenManifest; yaml.YAMLError.
        """
        depth = 0
        for event in events:
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > NESTING_MAX:  # what is less deep is told below, with its place
                    at = event.start_mark
                    mark = Mark(at.line + 1, at.column + 1) if at is not None else Mark(1, 1)
                    problem = Problem((), None, f"more than {NESTING_MAX} levels", "write a flatter value")
                    raise BrokenManifest(self.path, [ManifestProblem(mark, problem)])
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1

    def _choose(self, nodes: list[yaml.Node]) -> yaml.Node:
        """Of several documents the one of our kind: the file may describe more than the service."""
        if not nodes:
            raise InvalidManifest(
                f"{self.path}:1:1: is empty", remedy=f"start with apiVersion: {API_VERSION}, kind: {KIND}"
            )
        if len(nodes) == 1:
            return nodes[0]
        ours = [node for node in nodes if _kind(node) in (KIND, PIPELINE_KIND)]
        if len(ours) != 1:
            mark = self._mark(ours[1] if ours else nodes[0])
            kinds = " or ".join(sorted({_kind(node) for node in ours})) or KIND
            what = f"holds {len(ours)} documents of kind {kinds}"
            raise BrokenManifest(self.path, [ManifestProblem(mark, Problem((), None, what, "keep one in each file"))])
        return ours[0]

    @staticmethod
    def _mark(node: yaml.Node) -> Mark:
        return Mark(node.start_mark.line + 1, node.start_mark.column + 1)

    def _problem(self, node: yaml.Node, path: Path, what: str, remedy: str) -> None:
        self.problems.append(ManifestProblem(self._mark(node), Problem(path, None, what, remedy)))

    def _value(self, node: yaml.Node, path: Path, depth: int) -> object:
        self._values += 1
        if depth > DEPTH_MAX or self._values > VALUES_MAX:
            what = f"more than {DEPTH_MAX} levels" if depth > DEPTH_MAX else f"more than {VALUES_MAX} values"
            raise BrokenManifest(
                self.path,
                [ManifestProblem(self._mark(node), Problem(path[:5], None, what, "does an alias refer to itself?"))],
            )
        self.marks.setdefault(path, self._mark(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(inner, (*path, index), depth + 1) for index, inner in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: Path, depth: int) -> dict[str, object]:
        result: dict[str, object] = {}
        for key, inner in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name is None:
                self._problem(key, path, "a key that is no text", "write a name before the colon")
            elif name == "<<" and not key.style:
                self._problem(key, path, "<< (merge) is not read here", "write the fields out")
            elif name in result:
                first = self.marks[(*path, name)]
                self._problem(key, (*path, name), f"is given twice, first in line {first.line}", "keep one of them")
            else:
                # A mistake in a value is shown at the value, a missing or unknown field at its key.
                result[name] = self._value(inner, (*path, name), depth + 1)
                if isinstance(inner, yaml.MappingNode | yaml.SequenceNode) or not inner.value:
                    self.marks[(*path, name)] = self._mark(key)
        return result

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> object:
        text: str = node.value
        if node.tag not in _PLAIN_TAGS:
            self._problem(node, path, f"has the tag {node.tag}", "leave the tag out")
            return text
        if node.style or node.tag == "!":  # quoted or a block: a text, to every reader
            return text
        for pattern, what, remedy in _TWO_READINGS:
            if pattern.fullmatch(text):
                self._problem(node, path, f"{text} is {what}", remedy)
                return text
        return plain(text)


_PLAIN_TAGS: Final = {
    "!",
    *(f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "str", "timestamp", "value")),
}


def plain(text: str) -> object:
    """Give the value of an unquoted scalar by the core schema of YAML 1.2 (its section 10.3.2); no infinities."""
    if _NULL.fullmatch(text):
        return None
    if _TRUE.fullmatch(text):
        return True
    if _FALSE.fullmatch(text):
        return False
    if len(text) <= 100:
        if _INT.fullmatch(text):
            return int(text)
        if _HEX.fullmatch(text) or _OCTAL.fullmatch(text):
            return int(text, 0)
        if _FLOAT.fullmatch(text):
            number = float(text)
            return number if math.isfinite(number) else text
    return text


def _kind(node: yaml.Node) -> str:
    for key, value in node.value if isinstance(node, yaml.MappingNode) else []:
        if isinstance(key, yaml.ScalarNode) and key.value == "kind" and isinstance(value, yaml.ScalarNode):
            return str(value.value)
    return ""


def _resolve(manifest: Manifest, path: FilePath) -> tuple[LoadedManifest, list[Problem]]:
    """Make paths absolute and read the token; gives what is wrong with them."""
    problems: list[Problem] = []
    folder, spec = path.parent, manifest.spec
    module = _absolute_module(folder, spec.module, problems)
    token = _token_of(folder, spec.token_file, "tokenFile", problems)
    operator_token = _token_of(folder, spec.operator_token_file, "operatorTokenFile", problems)
    tls = _absolute_tls(spec.tls, folder, problems)
    ingress = _absolute_ingress(spec, folder, problems)
    lock = _absolute_lock(spec.lock, folder, problems)
    peers, peer_tokens = _absolute_peers(spec.peers, folder, problems)
    resolved = msgspec.structs.replace(spec, tls=tls, lock=lock, peers=peers, ingress=ingress)
    stored = spec.log_storage.path
    directory = (folder / stored) if stored else folder / ".deathless" / manifest.metadata.name
    whole = msgspec.structs.replace(manifest, spec=resolved)
    notes = tuple(f"{name} has no effect on this machine" for name in ignored_locally(manifest))
    whole_folder = FilePath(os.path.normpath(directory))
    return LoadedManifest(whole, path, module, whole_folder, token, peer_tokens, notes, operator_token), problems


def _absolute_module(folder: FilePath, named: str, problems: list[Problem]) -> str:
    """Make the path of `spec.module` absolute; what is found by its dotted name stays as it is."""
    source, _, attribute = named.rpartition(":")
    if not (source.endswith(".py") or "/" in source):
        return named
    file = (folder / source).resolve()
    if not file.is_file():
        remedy = "name the file relative to the manifest"
        problems.append(Problem(("spec", "module"), named, f"there is no file {file}", remedy))
    return f"{file}:{attribute}"


def _absolute_peers(
    peers: tuple[PeerService, ...], folder: FilePath, problems: list[Problem]
) -> tuple[tuple[PeerService, ...], dict[str, str]]:
    """A folder that is not there yet is no mistake: that service may be started later."""
    found, tokens = [], {}
    for index, peer in enumerate(peers):
        at: Path = ("spec", "peers", index, "tokenFile")
        if peer.token_file:
            tokens[peer.name], wrong = _read_token(folder / peer.token_file)
            if wrong:
                problems.append(Problem(at, peer.token_file, wrong, "write one line of at least 16 characters"))
        path = os.path.normpath(folder / peer.path) if peer.path else ""
        found.append(msgspec.structs.replace(peer, path=path))
    return tuple(found), tokens


def _absolute_ingress(spec: ServiceSpec, folder: FilePath, problems: list[Problem]) -> Ingress | None:
    """Make paths of `ingress.authentication` absolute, and see that our own processes have what to show."""
    ingress, at = spec.ingress, ("spec", "ingress", "authentication")
    found = ingress.authentication if ingress is not None else None
    if ingress is None or found is None or found.type == "None":
        return ingress
    if not spec.token_file and not (spec.tls is not None and spec.tls.certificate):
        what = f"is needed with ingress.authentication.type {found.type}: replicas, tools and peers show it"
        problems.append(Problem(("spec", "tokenFile"), None, what, "name a file with a token that no caller has"))
    if found.type == "MTLS" and not (spec.tls is not None and spec.tls.certificate and spec.tls.ca):
        problems.append(Problem((*at, "type"), "MTLS", "needs spec.tls", "give spec.tls with ca, certificate and key"))
    token, oidc = found.token, found.oidc
    if token is not None:
        path = folder / token.path
        if not token.path or not path.exists():
            what = f"there is no folder or file {path}" if token.path else "is needed on this machine"
            remedy = "name a folder with a file for each caller, which holds the caller's tokens"
            problems.append(Problem((*at, "token", "path"), token.path or None, what, remedy))
        token = msgspec.structs.replace(token, path=str(path))
    if oidc is not None and oidc.ca_file:
        file = folder / oidc.ca_file
        if not file.is_file():
            what = f"there is no file {file}"
            problems.append(Problem((*at, "oidc", "caFile"), oidc.ca_file, what, "name a PEM file"))
        oidc = msgspec.structs.replace(oidc, ca_file=str(file))
    return msgspec.structs.replace(ingress, authentication=msgspec.structs.replace(found, token=token, oidc=oidc))


def _token_of(folder: FilePath, named: str, field: str, problems: list[Problem]) -> str:
    """Read the token that a field of the spec names; empty where it names none."""
    if not named:
        return ""
    token, wrong = _read_token(folder / named)
    if wrong:
        problems.append(Problem(("spec", field), named, wrong, "write one line of at least 16 characters"))
    return token


def _read_token(path: FilePath) -> tuple[str, str]:
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        return "", f"{path} can't be read: {getattr(error, 'strerror', None) or error}"
    if len(token) < 16 or "\n" in token:
        return "", f"{path} holds no token"
    return token, ""


def _absolute_tls(tls: TlsSpec | None, folder: FilePath, problems: list[Problem]) -> TlsSpec | None:
    if tls is None:
        return None
    find = _finder(folder, ("spec", "tls"), problems)
    paths = {name: find((name,), getattr(tls, name), "a PEM file") for name in ("ca", "certificate", "key")}
    return msgspec.structs.replace(tls, **paths)


def _absolute_lock(lock: LockSpec, folder: FilePath, problems: list[Problem]) -> LockSpec:
    found = {
        name: settings.with_files(_finder(folder, ("spec", "lock", name), problems))
        for name, settings in lock.given().items()
    }
    return msgspec.structs.replace(lock, **found)


def _finder(folder: FilePath, below: Path, problems: list[Problem]) -> FindFile:
    """Give what finds files that fields below a path name, and notes those that are not there."""

    def find(at: Path, named: str, what: str) -> str:
        if not named:
            return ""
        file = folder / named
        if not file.is_file():
            remedy = f"name {what} relative to the manifest"
            problems.append(Problem((*below, *at), named, f"there is no file {file}", remedy))
        return str(file)

    return find
