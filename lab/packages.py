"""Install what the tests on this machine need of Debian's packages, where that is possible.

Why: a fresh machine runs the process tests and the cluster tests with the project's own commands alone.

Guarantees: does nothing when every program is there. Does not: run another package manager, or start anything: a
service that a package brings stays stopped.

Usage: python -m lab.packages tests | cluster
    tests = what process tests use to break file systems and networks; cluster = that, and what a cluster runs on.
    Exit code 0 = all there, 3 = left out because this machine can't install them (one line says why), 1 = it failed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from lab import debian

OF_TESTS = {
    "bindfs": "bindfs", "fusermount3": "fuse3", "gcc": "gcc", "nsenter": "util-linux", "ip": "iproute2",
    "nft": "nftables",
}  # fmt: skip
"""Program -> package that brings it."""
OF_CLUSTER = OF_TESTS | {
    "containerd": "containerd", "runc": "runc", "iptables": "iptables", "conntrack": "conntrack", "ipset": "ipset",
    "ethtool": "ethtool", "socat": "socat", "mmdebstrap": "mmdebstrap", "buildah": "buildah", "mkfs.ext4": "e2fsprogs",
    "curl": "curl",
}  # fmt: skip
FILES_OF_TESTS = {"/usr/include/stdlib.h": "libc6-dev"}
FILES_OF_CLUSTER = FILES_OF_TESTS | {"/usr/lib/cni/bridge": "containernetworking-plugins"}
WANTED = {"tests": (OF_TESTS, FILES_OF_TESTS), "cluster": (OF_CLUSTER, FILES_OF_CLUSTER)}


def missing(whose: str) -> list[str]:
    """Return the packages that bring what is not there of a key of WANTED."""
    programs, files = WANTED[whose]
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    found = [package for program, package in programs.items() if shutil.which(program, path=path) is None]
    return sorted({*found, *(package for file, package in files.items() if not os.path.exists(file))})


def main(arguments: list[str]) -> int:
    """Install; see the module's docstring for output and exit codes."""
    if len(arguments) != 1 or arguments[0] not in WANTED:
        print(f"usage: python -m lab.packages {' | '.join(WANTED)}", file=sys.stderr)
        return 1
    wanted = missing(arguments[0])
    if not wanted:
        return 0
    try:
        debian.install(*wanted)
    except debian.CannotInstall as why:
        print(f"packages left out: {why}")
        return 3
    except subprocess.CalledProcessError as error:
        print(f"packages: {error}", file=sys.stderr)
        return 1
    left = missing(arguments[0])
    if left:
        print(f"packages: still missing {', '.join(left)}", file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
