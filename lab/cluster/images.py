"""Images for nodes that reach no registry: made of static binaries, and loaded thinly.

Why: importing images is what a cluster of the lab spends its time on. A node keeps its images over clusters, and
`load` sends it only the layers it does not have, so that a change of our code costs a second per node.

Guarantees: an image made here is the same, bit by bit, when its files are. `load` takes any docker archive (`docker
save`, `buildah push docker-archive:`); afterwards the node has the image under every name the archive gives it.

Does not: build from a Dockerfile (tools/image.py does).
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from lab.cluster.machine import run
from lab.cluster.node import Node

PAUSE = "registry.k8s.io/pause:3.10"
COREDNS = "registry.k8s.io/coredns/coredns:v1.14.7"
ETCD = "gcr.io/etcd-development/etcd:v3.6.16"

_LAYER = "application/vnd.oci.image.layer.v1.tar"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def build_pause(folder: Path) -> Path:
    """Compile pause.c, which is the first process of each node and sandbox, and return the program."""
    return _compiled("pause.c", folder / "pause", "-static", "-s")


def build_no_links(folder: Path) -> Path:
    """Compile no_links.c, which takes hard links from the file system in user space it is loaded into; return it."""
    return _compiled("no_links.c", folder / "no_links.so", "-shared", "-fPIC")


def _compiled(source: str, output: Path, *how: str) -> Path:
    """Compile one of this folder's sources where that is newer than its output."""
    path = Path(__file__).with_name(source)
    if not output.exists() or output.stat().st_mtime < path.stat().st_mtime:
        output.parent.mkdir(parents=True, exist_ok=True)
        run("gcc", "-Os", *how, "-o", output, path)
    return output


def make(archive: Path, name: str, files: Mapping[str, Path], entrypoint: Sequence[str], user: str = "") -> Path:
    """Write a docker archive of static programs alone; one that is newer than all of them is kept.

    Args:
        archive: where to.
        name: the image's full name.
        files: program by its path in the image, without a leading slash.
        entrypoint: as in an image's settings.
        user: likewise.
    """
    newest = max(path.stat().st_mtime for path in files.values())
    if archive.exists() and archive.stat().st_mtime > newest:
        return archive
    layer = _layer(files)
    digest = hashlib.sha256(layer).hexdigest()
    path = "PATH=/usr/local/bin:/usr/bin:/bin"
    settings = {"Entrypoint": list(entrypoint), "Env": [path], "User": user, "WorkingDir": "/"}
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "static programs"}],
        },
        sort_keys=True,
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": [f"{digest}.tar"]}]
    archive.parent.mkdir(parents=True, exist_ok=True)
    partial = archive.with_suffix(".partial")
    with tarfile.open(partial, "w") as tar:
        _add(tar, config_name, config)
        _add(tar, "manifest.json", json.dumps(manifest).encode())
        _add(tar, f"{digest}.tar", layer)
    partial.replace(archive)
    return archive


def _layer(files: Mapping[str, Path]) -> bytes:
    """Return a layer with the files, a passwd for root and a /tmp for all."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        folders = {str(parent) for name in files for parent in Path(name).parents} - {"."}
        for folder in sorted(folders | {"etc", "tmp"}):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        _add(tar, "etc/passwd", b"root:x:0:0::/:/sbin/nologin\nnonroot:x:65532:65532::/:/sbin/nologin\n")
        for name, path in sorted(files.items()):
            _add(tar, name, path.read_bytes(), mode=0o755)
    return content.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    """Add a file that belongs to root and has no time."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Image:
    """One image of a docker archive, described as the OCI does."""

    names: list[str]
    manifest: bytes
    config: bytes
    layers: dict[str, str]  # digest -> path in the archive


def load(node: Node, archive: Path) -> int:
    """Load an archive into a node and return how many bytes had to be sent."""
    there = set(node.exec("ctr", "-n", "k8s.io", "content", "ls", "-q").split())
    with tarfile.open(archive) as tar:
        images = _read(tar)
        missing = {digest: path for image in images for digest, path in image.layers.items() if digest not in there}
        size = sum(tar.getmember(path).size for path in missing.values())
        with tempfile.NamedTemporaryFile(dir=node.folder, suffix=".tar") as thin:
            _write_thin(thin, tar, images, missing)
            thin.flush()
            node.exec("ctr", "-n", "k8s.io", "images", "import", thin.name, timeout_s=300)
    return size


def _read(tar: tarfile.TarFile) -> list[_Image]:
    """Return the images of a docker archive."""
    images = []
    for entry in json.loads(_content(tar, "manifest.json")):
        config = _content(tar, entry["Config"])
        digests = json.loads(config)["rootfs"]["diff_ids"]
        layers = dict(zip(digests, entry["Layers"], strict=True))
        described = [
            {"mediaType": _LAYER, "digest": digest, "size": tar.getmember(layers[digest]).size} for digest in digests
        ]
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _describe(_CONFIG, config),
            "layers": described,
        }
        images.append(
            _Image(
                names=entry["RepoTags"] or [],
                manifest=json.dumps(manifest, sort_keys=True).encode(),
                config=config,
                layers=layers,
            )
        )
    return images


def _write_thin(file: IO[bytes], tar: tarfile.TarFile, images: Sequence[_Image], layers: Mapping[str, str]) -> None:
    """Write an OCI archive of the images with no layers but the given ones; the node has the others."""
    index = []
    with tarfile.open(fileobj=file, mode="w") as out:
        _add(out, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        for image in images:
            for blob in (image.config, image.manifest):
                _add(out, f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}", blob)
            for name in image.names:
                described = _describe(_MANIFEST, image.manifest)
                index.append(described | {"annotations": {"io.containerd.image.name": name}})
        for digest, path in layers.items():
            member = tar.extractfile(path)
            assert member is not None
            entry = tarfile.TarInfo(f"blobs/{digest.replace(':', '/')}")
            entry.size = tar.getmember(path).size
            out.addfile(entry, member)
        _add(out, "index.json", json.dumps({"schemaVersion": 2, "manifests": index}).encode())


def _describe(media_type: str, blob: bytes) -> dict[str, Any]:
    """Return an OCI descriptor."""
    return {"mediaType": media_type, "digest": f"sha256:{hashlib.sha256(blob).hexdigest()}", "size": len(blob)}


def _content(tar: tarfile.TarFile, name: str) -> bytes:
    """Return a file of an archive."""
    member = tar.extractfile(name)
    assert member is not None
    return member.read()
