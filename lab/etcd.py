#!/usr/bin/env python3
"""Build the etcd server that the tests of the lock run against, once, into a cache.

Why it exists: the tests of the etcd client and of the etcd lock kill, freeze and restart a *real*
etcd. Distributions ship none or an old one (below 3.5.5 a one-member etcd may answer before its
write is durable), so the server is built from its Go modules with the ordinary Go client, in about
half a minute, and kept outside the tree.

What it guarantees: the binary appears under its final name only when complete (written under a
temporary name, then renamed), so two builds at once cannot hand out half a file. A binary that is
there is never rebuilt. Where Go is missing nothing is built and one plain line says so.

What it does not: check signatures beyond what the Go client checks (go.sum and checksum database),
install anything on the search path, or build etcdctl: the tests speak to etcd themselves.

Usage: lab/etcd.py [--version X.Y.Z] [--where]
    prints the path of the binary; exit code 0 = it is there, 3 = left out because Go is missing,
    1 = the build failed (its output is on stderr). --where prints the path and builds nothing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

#: The version built when none is named; >= 3.6, see docs/design/0004-etcd-client.md.
VERSION = "3.6.16"

#: The one line that stands in for every test that needs etcd where Go is missing.
GO_MISSING = "etcd tests left out: no Go compiler (`go`) on the search path to build etcd with"

_MODULE = "go.etcd.io/etcd/server/v3"

#: A cold build takes 25 s on two idle cores; a loaded machine with a slow network gets this long.
_BUILD_TIMEOUT_S = 900


class GoMissing(Exception):
    """There is no binary in the cache and no Go compiler to build one."""


class BuildFailed(Exception):
    """The Go client refused to build etcd; the message holds its output."""


def binary_path(version: str = VERSION) -> Path:
    """Return where the binary of `version` is kept, whether it is there yet or not.

    Below $XDG_CACHE_HOME, or ~/.cache where that is unset: never inside the source tree.
    """
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "deathless" / f"etcd-{version}" / "etcd"


def find(version: str = VERSION) -> Path | None:
    """Return the cached binary of `version`, or None where it was not built yet."""
    path = binary_path(version)
    return path if path.is_file() and os.access(path, os.X_OK) else None


def ensure(version: str = VERSION) -> Path:
    """Return the binary of `version`, building it first where it is missing.

    Raises:
        GoMissing: nothing cached and no Go compiler; say so and leave the etcd tests out.
        BuildFailed: the build was tried and failed; its output is the message.
    """
    found = find(version)
    if found is not None:
        return found
    go = shutil.which("go")
    if go is None:
        raise GoMissing(GO_MISSING)
    target = binary_path(version)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="build-", dir=target.parent) as scratch:
        built = _build(go, version, Path(scratch))
        os.replace(built, target)
    return target


def _build(go: str, version: str, scratch: Path) -> Path:
    """Build etcd in `scratch` and return the binary's path there.

    etcd's modules carry `replace` lines, which `go install module@version` refuses, so a module of
    our own requires the server and takes over the Go version that the server asks for.
    """
    environment = dict(os.environ)
    environment |= {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod -trimpath -buildvcs=false", "GOWORK": "off"}

    def run(*arguments: str) -> str:
        try:
            done = subprocess.run(
                [go, *arguments],
                cwd=scratch,
                env=environment,
                capture_output=True,
                text=True,
                timeout=_BUILD_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            raise BuildFailed(f"go {' '.join(arguments)}: no end within {_BUILD_TIMEOUT_S} s") from late
        if done.returncode != 0:
            raise BuildFailed(f"go {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    run("mod", "init", "deathless.invalid/etcd")
    run("get", f"{_MODULE}@v{version}")
    run("build", "-ldflags", "-s -w", "-o", "etcd", _MODULE)
    return scratch / "etcd"


def main(arguments: list[str] | None = None) -> int:
    """Run the tool; see the module's docstring for output and exit codes."""
    parser = argparse.ArgumentParser(description="Build (once) the etcd server that the tests use.")
    parser.add_argument("--version", default=VERSION, help=f"etcd release to build (default {VERSION})")
    parser.add_argument("--where", action="store_true", help="print the path only, build nothing")
    options = parser.parse_args(arguments)
    if options.where:
        print(binary_path(options.version))
        return 0
    try:
        path = ensure(options.version)
    except GoMissing as missing:
        print(missing)
        return 3
    except BuildFailed as failed:
        print(failed, file=sys.stderr)
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
