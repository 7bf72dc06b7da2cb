"""Installs Debian's packages, where that is possible: for whatever here needs programs that no other manager gives.

Guarantees: nothing that a package would start is started: whoever needs it starts its own. Does not: ask.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

APT: Final = ("apt-get", "-o", "DPkg::Lock::Timeout=120", "-qq")
POLICY: Final = Path("/usr/sbin/policy-rc.d")  # asked by every package before it starts anything; 101: do not


class CannotInstall(Exception):
    """This machine can't install packages; the message says for want of what, and which."""


def install(*packages: str) -> None:
    """Install packages. Raises: CannotInstall, CalledProcessError when it failed."""
    named = ", ".join(packages)
    if os.geteuid() != 0 or shutil.which(APT[0]) is None:
        why = "root" if os.geteuid() != 0 else APT[0]
        raise CannotInstall(f"without {why} this machine can't install {named}")
    print(f"Installing {named}", file=sys.stderr, flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with _nothing_starts():
        subprocess.run([*APT, "update"], check=True, env=environment, stdout=sys.stderr)
        arguments = [*APT, "install", "-y", "--no-install-recommends", *packages]
        subprocess.run(arguments, check=True, env=environment, stdout=sys.stderr)


@contextlib.contextmanager
def _nothing_starts() -> Iterator[None]:
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n", encoding="ascii")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()
