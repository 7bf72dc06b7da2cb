#!/usr/bin/env python3
"""Build the container image: with buildah, also on a machine that reaches no container registry; else with Docker.

Why it exists: the tests on a real cluster run the image that is shipped, built from the Dockerfile that is shipped.
Its base, `python:3.11-slim-bookworm`, comes from a registry; where there is none, the same distribution with the same
Python is made from Debian's packages by mmdebstrap, once, and kept in buildah's store under that name.

What it guarantees: how the machine reaches its package indexes and which authorities it trusts is lent to the steps
of the build as read-only mounts; nothing of it is written into a layer, the environment or the history. Unchanged
steps come from the store, so a change of code alone takes seconds. The archive appears under its name when complete.

What it does not: push anywhere, or run the image. Buildah needs root and, for the base, mmdebstrap. Where it can't work
and a Docker engine answers, that engine builds, as `docker build .` does; it takes the base from a registry.

Usage: tools/image.py [--tag NAME] [--output FILE] [--file DOCKERFILE] [--target STAGE] [FOLDER]
    prints the path of a docker archive (`docker load`, `kind load image-archive`, `ctr images import` take it).
    Exit code 0 = built, 3 = left out because the machine lacks something, 1 = the build failed.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
TAG = f"docker.io/library/deathless:{VERSION}"
"""What the chart asks for by default."""
BASE = "docker.io/library/python:3.11-slim-bookworm"

_AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
#: Results of steps kept for the next build; a build of ours has about a dozen, a change of code adds five.
_STEPS_MAX = 100
#: What of a machine's pip settings tells where packages come from.
_PIP_SETTINGS = ("index-url", "trusted-host", "timeout")
# `usr-is-merged` keeps out a package that merges /usr of old systems and brings all of Perl.
_PACKAGES = "python3,python3-pip,python3-distutils,ca-certificates,usr-is-merged"
_MERGED_USR = "/usr/share/mmdebstrap/hooks/maybe-merged-usr"


class Left(Exception):
    """The machine lacks something; the message is the one line that says so."""


class Failed(Exception):
    """A step failed; the message holds its output."""


def store_folder() -> Path:
    """Return where buildah's store lies: below the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "deathless" / "images"


def run(*command: str | Path, environment: Mapping[str, str] | None = None, timeout_s: float = 1800) -> str:
    """Run a program and return what it wrote to stdout."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode != 0:
        raise Failed(f"{shlex.join(words)}: exit code {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def say(line: str) -> None:
    """Tell progress on stderr."""
    print(line, file=sys.stderr, flush=True)


def require(*programs: str) -> None:
    """Raise `Left` when the machine cannot build images."""
    missing = [name for name in programs if shutil.which(name) is None]
    if os.geteuid() != 0:
        raise Left("image left out: building with buildah needs root here, and no Docker engine answers")
    if missing:
        raise Left(f"image left out: missing {', '.join(missing)} (apt-get install {' '.join(missing)})")


class Store:
    """Buildah with a store of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        settings = folder / "storage.conf"
        roots = f'graphroot = "{folder}/store"\nrunroot = "{folder}/run"\n'
        settings.write_text(f'[storage]\ndriver = "overlay"\n{roots}')
        self._environment = {"CONTAINERS_STORAGE_CONF": str(settings)}

    def buildah(self, *arguments: str | Path) -> str:
        """Run buildah on this store."""
        return run("buildah", *arguments, environment=self._environment)

    def has(self, tag: str) -> bool:
        """Tell whether an image of that name is there."""
        try:
            self.buildah("inspect", "--type", "image", "--format", "{{.FromImageID}}", tag)
        except Failed:
            return False
        return True

    def make_base(self) -> None:
        """Put the base image into the store, made from Debian's packages."""
        require("mmdebstrap")
        say(f"making {BASE} from Debian's packages (once, about a minute)")
        started = time.monotonic()
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            rootfs = Path(scratch) / "rootfs.tar"
            run("mmdebstrap", *_base_options(), "bookworm", rootfs, _mirror())
            container = self.buildah("from", "scratch").strip()
            try:
                self.buildah("add", "--quiet", container, rootfs, "/")
                self.buildah("config", "--env", "LANG=C.UTF-8", "--cmd", "python3", container)
                self.buildah("commit", "--quiet", container, BASE)
            finally:
                self.buildah("rm", container)
        say(f"base made in {time.monotonic() - started:.0f} s")

    def build(self, folder: Path, file: Path, tag: str, target: str = "") -> None:
        """Build a Dockerfile, or a stage of it; the machine's settings are mounted for its RUN steps only."""
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as pip:
            pip.write(_pip_settings())
            pip.flush()
            mounts = {pip.name: "/etc/pip.conf"}
            mounts |= {one: one for one in (_AUTHORITIES, "/etc/apt/sources.list.d", "/etc/apt/apt.conf.d")}
            lent = [
                word for here, there in mounts.items() if Path(here).exists() for word in ("-v", f"{here}:{there}:ro")
            ]
            how = ["--isolation", "chroot", "--network", "host", "--pull-never", "--layers", "--format", "docker"]
            stage = ["--target", target] if target else []
            self.buildah("build", "--quiet", *how, *stage, *lent, "-t", tag, "-f", file, folder)

    def save(self, tag: str, archive: Path) -> None:
        """Write an image as a docker archive."""
        archive.parent.mkdir(parents=True, exist_ok=True)
        partial = archive.with_name(f".{archive.name}.{os.getpid()}")
        partial.unlink(missing_ok=True)
        try:
            self.buildah("push", "--quiet", tag, f"docker-archive:{partial}:{tag}")
            partial.replace(archive)
        finally:
            partial.unlink(missing_ok=True)

    def forget_old_steps(self) -> None:
        """Remove the results of former builds' steps when there are too many; the next build does them again."""
        if len(self.buildah("images", "--quiet", "--filter", "dangling=true", "--all").split()) > _STEPS_MAX:
            self.buildah("rmi", "--prune")


def docker_answers() -> bool:
    """Tell whether a Docker engine can build here."""
    if shutil.which("docker") is None:
        return False
    return (
        subprocess.run(["docker", "version"], capture_output=True, stdin=subprocess.DEVNULL, check=False).returncode
        == 0
    )


def build_with_docker(folder: Path, file: Path, tag: str, archive: Path, target: str = "") -> Path:
    """Build as `build` does, with a Docker engine. Raises: Failed."""
    started = time.monotonic()
    stage = ["--target", target] if target else []
    run("docker", "build", "--quiet", *stage, "--tag", tag, "--file", file, folder)
    archive.parent.mkdir(parents=True, exist_ok=True)
    partial = archive.with_name(f".{archive.name}.{os.getpid()}")
    try:
        run("docker", "save", "--output", partial, tag)
        partial.replace(archive)
    finally:
        partial.unlink(missing_ok=True)
    say(f"{tag}: built and saved by Docker in {time.monotonic() - started:.1f} s")
    return archive


def _mirror() -> str:
    """Return the mirror this machine takes Debian's packages from."""
    sites = run("apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages").split()
    if not sites:
        raise Failed("apt knows no mirror to take Debian's packages from")
    return sites[0]


def _base_options() -> list[str]:
    """Return the options of mmdebstrap for a small root file system with Python and pip."""
    left_out = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*")
    emptied = (
        'rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/* "$1"/var/cache/debconf/*-old "$1"/var/log/*',
        'rm -f "$1"/etc/apt/apt.conf.d/99mmdebstrap "$1"/etc/dpkg/dpkg.cfg.d/99mmdebstrap',
        # pip may install into this Python: there is no other use for it in an image.
        'rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED',
        'ln -sf python3 "$1"/usr/bin/python',
        ': >"$1"/etc/resolv.conf; echo localhost >"$1"/etc/hostname; : >"$1"/etc/apt/sources.list',
    )
    return [
        "--quiet",
        "--variant=minbase",
        f"--include={_PACKAGES}",
        f"--hook-dir={_MERGED_USR}",
        *(f"--dpkgopt=path-exclude={path}" for path in left_out),
        '--aptopt=APT::Install-Recommends "false"',
        '--aptopt=Acquire::Check-Valid-Until "false"',
        *(f"--customize-hook={hook}" for hook in emptied),
    ]


def _pip_settings() -> str:
    """Return a pip.conf with where this machine takes Python packages from."""
    settings = {}
    for line in _pip_config().splitlines():
        name, _, value = line.partition("=")
        name = name.rpartition(".")[2].removeprefix("default-")
        words = [word for word in value.strip("'\"").replace("\\n", " ").split() if not word.startswith("file:")]
        if name.endswith(_PIP_SETTINGS) and words:
            settings[name] = " ".join(words)
    return "\n".join(["[global]", *(f"{name} = {value}" for name, value in settings.items())]) + "\n"


def _pip_config() -> str:
    """Return what pip says of its settings; an environment without pip lends the system's, or none."""
    for python in (sys.executable, "python3"):
        try:
            return run(python, "-m", "pip", "config", "list")
        except Failed:
            continue
    return ""


def build(folder: Path, file: Path, tag: str, archive: Path, target: str = "") -> Path:
    """Build `file` in `folder`, up to the stage `target`, as `tag` and return the archive.

    Raises:
        Left: the machine lacks something.
        Failed: a step failed.
    """
    if (os.geteuid() != 0 or shutil.which("buildah") is None) and docker_answers():
        return build_with_docker(folder, file, tag, archive, target)
    require("buildah")
    store = Store(store_folder())
    if not store.has(BASE):
        store.make_base()
    started = time.monotonic()
    store.build(folder, file, tag, target)
    built = time.monotonic()
    store.save(tag, archive)
    store.forget_old_steps()
    say(f"{tag}: built in {built - started:.1f} s, saved in {time.monotonic() - built:.1f} s")
    return archive


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool; see the module's docstring for output and exit codes."""
    parser = argparse.ArgumentParser(description="Build the container image.")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT, help="the build's context (default: this tree)")
    parser.add_argument("--file", type=Path, help="the Dockerfile (default: FOLDER/Dockerfile)")
    parser.add_argument("--target", default="", help="the stage of it (default: the last one)")
    parser.add_argument("--tag", help=f"the image's name (default {TAG}, of a stage deathless-STAGE:{VERSION})")
    parser.add_argument("--output", type=Path, help="the archive (default build/deathless[-STAGE]-image.tar)")
    options = parser.parse_args(arguments)
    name = "-".join(filter(None, ("deathless", options.target)))
    tag = options.tag or TAG.replace("/deathless:", f"/{name}:")
    output = options.output or ROOT / "build" / f"{name}-image.tar"
    try:
        archive = build(options.folder, options.file or options.folder / "Dockerfile", tag, output, options.target)
    except Left as left:
        print(left)
        return 3
    except Failed as failed:
        print(failed, file=sys.stderr)
        return 1
    say(f"{archive}: {archive.stat().st_size / 1e6:.0f} MB")
    print(archive)
    return 0


if __name__ == "__main__":
    sys.exit(main())
