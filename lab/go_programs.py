"""Builds Go programs of this tree, once: what stands in the cache is named by the sources that it was built of.

Guarantees: a program appears in the cache whole or not at all, and is linked statically, so it runs in any image. Does
not: fetch anything; these programs need the standard library alone.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

BUILD_S: Final = 600.0


class GoBuildFailed(Exception):
    """The compiler does not take the sources; says what it said."""


@functools.cache
def built(name: str, *sources: Path) -> Path | None:
    """Build a program of one package, where it is missing or a source changed; gives it, or None where there is no Go.

    Args:
        name: of it.
        sources: its files.

    Raises: GoBuildFailed, subprocess.TimeoutExpired, OSError.
    """
    digest = hashlib.blake2b(b"".join(each.read_bytes() for each in sources), digest_size=8).hexdigest()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    target = Path(base, "deathless", "go", f"{name}-{digest}", name)
    if target.exists():
        return target
    go = shutil.which("go")
    if go is None:
        return None
    target.parent.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"CGO_ENABLED": "0", "GO111MODULE": "off", "GOFLAGS": "-trimpath -buildvcs=false"}
    with tempfile.TemporaryDirectory(prefix="build-", dir=target.parent) as scratch:
        copies = [shutil.copy(each, scratch) for each in sources]
        done = subprocess.run(
            [go, "build", "-ldflags", "-s -w", "-o", name, *copies],
            cwd=scratch, env=environment, capture_output=True, text=True, timeout=BUILD_S, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise GoBuildFailed(f"go build of {name}:\n{done.stdout}{done.stderr}")
        Path(scratch, name).replace(target)
    return target
