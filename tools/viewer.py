"""Fetches the viewer of the HTTP interface's description, and puts it where the ingress serves it from.

    python tools/viewer.py 5.35.0

The files are stored compressed, as they are served. The version stands in `VERSION` beside them.

Does not: run at a build or a start; what it fetched is part of the tree.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parent.parent / "runtime" / "deathless" / "shell" / "ingress" / "viewer"
PACKAGE: Final = "swagger-ui-dist"
FILES: Final = ("swagger-ui-bundle.js", "swagger-ui.css")
LICENCES: Final = ("LICENSE", "NOTICE", "swagger-ui-bundle.js.LICENSE.txt")


def fetch(version: str) -> None:
    """Fetch a version of the viewer. Raises: CalledProcessError; KeyError where it lacks a file."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["npm", "pack", "--silent", f"{PACKAGE}@{version}"], cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
        [archive] = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as packed:
            for name in (*FILES, *LICENCES):
                member = packed.extractfile(f"package/{name}")
                if member is None:
                    raise KeyError(name)
                data = member.read()
                if name in FILES:
                    (FOLDER / f"{name}.gz").write_bytes(gzip.compress(data, 9, mtime=0))
                else:
                    (FOLDER / name).write_bytes(data)
    (FOLDER / "VERSION").write_text(version + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    fetch(sys.argv[1])
