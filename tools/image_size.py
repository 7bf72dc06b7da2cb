#!/usr/bin/env python3
"""Writes into docs/kubernetes/image.md how large the image is that `make image` built.

Why: a size written by hand is the size of some earlier day. Guarantees: sizes are those of the archive's own layers;
`--check` fails where the page is off by more than a tenth. Does not: build the image.

    python tools/image_size.py [ARCHIVE]            write
    python tools/image_size.py [ARCHIVE] --check    exit 1 when the page is off
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "kubernetes" / "image.md"
ARCHIVE = ROOT / "build" / "deathless-image.tar"
BEGIN, END = "<!-- size:begin -->\n", "<!-- size:end -->"
OFF_MAX = 0.1
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """An image's size."""

    unpacked: int  # bytes of all layers, as they lie on a node
    packed: int  # the same compressed by gzip, as a registry holds them
    ours: int  # bytes of the layers above the base, unpacked


def measure(archive: Path) -> Size:
    """Measure a docker archive whose first layer is its base. Raises: KeyError, OSError for what is none."""
    with tarfile.open(archive) as opened:
        manifest = opened.extractfile("manifest.json")
        assert manifest is not None, "the manifest is a file"
        layers: list[str] = json.load(manifest)[0]["Layers"]
        sizes = [opened.getmember(name).size for name in layers]
        packed = sum(_packed(opened, name) for name in layers)
    return Size(unpacked=sum(sizes), packed=packed, ours=sum(sizes[1:]))


def _packed(opened: tarfile.TarFile, name: str) -> int:
    layer = opened.extractfile(name)
    assert layer is not None, "a layer is a file"
    packer, size = zlib.compressobj(wbits=31), 0
    while piece := layer.read(_PIECE):
        size += len(packer.compress(piece))
    return size + len(packer.flush())


def show(size: Size) -> str:
    """Give the lines of the page."""
    whole, packed, ours = (round(each / 1e6) for each in (size.unpacked, size.packed, size.ours))
    return f"{whole} MB on a node, {packed} MB in a registry; {ours} MB of the former are ours, the rest is the base.\n"


def told(page: str) -> list[int]:
    """Give the megabytes that the page tells. Raises: ValueError where it has no place for them."""
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    return [int(found) for found in re.findall(r"(\d+) MB", page[begin:end])]


def differs(size: Size, page: str) -> bool:
    """Tell whether the page is off by more than a tenth in one of its numbers."""
    now, before = told(f"{BEGIN}{show(size)}{END}"), told(page)
    if len(now) != len(before):
        return True
    return any(abs(one - other) > OFF_MAX * max(one, other) for one, other in zip(now, before, strict=True))


def written(size: Size, page: str) -> str:
    """Give the page with these sizes."""
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    return page[:begin] + show(size) + page[end:]


def main(arguments: list[str] | None = None) -> int:
    """Write, or check."""
    parser = argparse.ArgumentParser(description="Write the image's size into its page.")
    parser.add_argument("archive", nargs="?", type=Path, default=ARCHIVE)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page is off by a tenth")
    options = parser.parse_args(arguments)
    size, page = measure(options.archive), PAGE.read_text()
    if options.check:
        if differs(size, page):
            print(f"{PAGE}: is {show(size).strip()}", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(written(size, page))
    print(show(size), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
