"""Install PySpark beside the environment, where that is possible: it is larger than all the rest together.

Why: pipelines are tested with a real Spark. PySpark comes as source with its jars, 460 MB; it is unpacked once into the
cache, and put on the module path of what needs it.

Guarantees: does nothing when it is there; what it installs is pinned by hash in requirements-spark.txt. Does not: touch
the environment, or start Spark.

Usage: python -m lab.spark
    prints the folder for PYTHONPATH; exit code 0 = it is there, and Java too; 3 = left out because this machine can't
    install it (one line says why), 1 = the installation failed.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from lab import debian

from deathless.spark.session import JAVA_MIN, java_version

PINS: Final = Path(__file__).resolve().parent.parent / "requirements-spark.txt"
PACKAGE: Final = "openjdk-17-jre-headless"


class Missing(Exception):
    """Spark can't run here; the message is the one line to print."""


def folder() -> Path:
    """Return where PySpark is kept, whether it is there yet or not; other pins are kept elsewhere."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    pins = hashlib.sha256(PINS.read_bytes()).hexdigest()[:12]
    return Path(base) / "deathless" / f"spark-{pins}"


def find() -> Path | None:
    """Return the folder for PYTHONPATH; None: PySpark is not there."""
    return folder() if (folder() / "pyspark" / "jars").is_dir() else None


def ensure() -> Path:
    """Return the folder for PYTHONPATH, installing what lacks. Raises: Missing, CalledProcessError when it failed."""
    if java_version() < JAVA_MIN:
        _install_java()
    found = find()
    if found is not None:
        return found
    target = folder()
    target.parent.mkdir(parents=True, exist_ok=True)
    print("Installing PySpark (460 MB)", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="spark-", dir=target.parent) as scratch:
        arguments = ["--quiet", "--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--no-deps"]
        pip = [sys.executable, "-m", "pip", "install", *arguments, "--require-hashes", "-r", str(PINS)]
        subprocess.run([*pip, "--target", f"{scratch}/new"], check=True, stdout=sys.stderr)
        os.replace(f"{scratch}/new", target)
    return target


def _install_java() -> None:
    """Install Debian's package. Raises: Missing, CalledProcessError."""
    try:
        debian.install(PACKAGE)
    except debian.CannotInstall as why:
        raise Missing(f"Spark left out: it needs Java {JAVA_MIN}, and {why}") from None


def main() -> int:
    """Install; see the module's docstring for output and exit codes."""
    try:
        print(ensure())
    except Missing as missing:
        print(missing)
        return 3
    except subprocess.CalledProcessError as failed:
        print(f"{' '.join(map(str, failed.cmd))} ended with {failed.returncode}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
