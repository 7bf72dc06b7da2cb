"""The manifest with which a forked service is started: the original's, of the folder in which it stands.

Guarantees: relative paths of the original name the same files; the log is in the fork's folder, services of the fork
are found there, and no port is the original's. Does not: write it. May import base.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

import msgspec
import yaml

from deathless.base.manifest import Manifest, Metadata, ServiceSpec
from deathless.base.manifest_ingress import Ingress
from deathless.base.source_kinds import SOURCE_KINDS
from deathless.base.source_kinds.connector import connector_options
from deathless.shell.operate.manifest_file import LoadedManifest

_FILES: Final = ("tokenFile", "operatorTokenFile")


def forked_manifest(loaded: LoadedManifest, forked: Collection[str]) -> str:
    """Give it as YAML.

    Args:
        loaded: the original's.
        forked: the services of the fork.
    """
    tree: dict[str, object] = msgspec.to_builtins(loaded.manifest)
    spec = tree["spec"]
    assert isinstance(spec, dict)
    if loaded.manifest.spec.binding is None:
        spec["module"] = loaded.module
    else:
        command = [_path(each, loaded.folder) for each in loaded.manifest.spec.binding.command]
        spec["binding"] = {**spec["binding"], "command": command}
    spec["logStorage"] = {**spec["logStorage"], "path": ""}
    for name in _FILES:
        spec[name] = str(loaded.folder / spec[name]) if spec[name] else ""
    if spec["ingress"] is not None:
        spec["ingress"] = {**spec["ingress"], "port": 0}
    spec["peers"] = [_peer(each, loaded.folder) for each in spec["peers"] if each["name"] not in forked]
    for driver in spec["drivers"]:
        driver["options"] = {name: _path(value, loaded.folder) for name, value in driver["options"].items()}
    for sink in spec["sinks"]:
        sink["options"] = _absolute(sink["options"], loaded.folder)
    for source in spec["sources"]:
        source["options"] = _absolute(source["options"], loaded.folder)
        if SOURCE_KINDS[source["kind"]].gate:
            listens = connector_options(source["name"], source["options"]).listen
            source["options"]["listen"] = f"{listens.rpartition(':')[0]}:0"
    told = _without_defaults(tree, _defaults(loaded.manifest))
    return f"# Written by `deathless fork`.\n{yaml.safe_dump(told, sort_keys=False, width=120)}"


def _peer(peer: dict[str, object], folder: Path) -> dict[str, object]:
    """Give the entry of a service outside of the fork; those inside stand beside, and need none."""
    return {name: _path(value, folder) if name == "tokenFile" else value for name, value in peer.items() if value}


def _path(value: object, folder: Path) -> object:
    """Make what names a file of the original's folder absolute."""
    return str(folder / value) if isinstance(value, str) and value and (folder / value).is_file() else value


def _absolute(options: dict[str, object], folder: Path) -> dict[str, object]:
    """Make absolute what options of sinks and sources name as files, or as the folder that is read."""
    found: dict[str, object] = {}
    for name, value in options.items():
        if isinstance(value, dict):
            found[name] = _absolute(value, folder)
        elif isinstance(value, str) and value and (name == "folder" or name.endswith("File")):
            found[name] = str(folder / value)
        else:
            found[name] = value
    return found


def _defaults(manifest: Manifest) -> dict[str, object]:
    """Give the same document with nothing said in it."""
    plain = Manifest(
        api_version=manifest.api_version,
        kind=manifest.kind,
        metadata=Metadata(name=""),
        spec=ServiceSpec(module="", ingress=None if manifest.spec.ingress is None else Ingress()),
    )
    found: dict[str, object] = msgspec.to_builtins(plain)
    return found


def _without_defaults(tree: dict[str, object], default: dict[str, object]) -> dict[str, object]:
    """Leave out what is as by default, but for the document's kind."""
    found: dict[str, object] = {}
    for name, value in tree.items():
        usual = default.get(name)
        if isinstance(value, dict) and isinstance(usual, dict):
            if inner := _without_defaults(value, usual):
                found[name] = inner
        elif name in ("apiVersion", "kind") or (value != usual and (value or usual)):
            found[name] = list(value) if isinstance(value, tuple) else value
    return found
