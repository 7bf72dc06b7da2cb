"""The page tells the size that the archive has."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
from tools import image_size

ROOT = Path(__file__).resolve().parents[3]
PAGE = f"Size:\n\n{image_size.BEGIN}{image_size.END}\n\nMore.\n"


def archive(folder: Path, *layers: bytes) -> Path:
    """Write a docker archive."""
    path = folder / "image.tar"
    members = {f"{index}.tar": content for index, content in enumerate(layers)}
    members["manifest.json"] = json.dumps([{"Layers": [f"{index}.tar" for index in range(len(layers))]}]).encode()
    with tarfile.open(path, "w") as opened:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            opened.addfile(member, io.BytesIO(content))
    return path


def test_layers_are_added_up_and_packed(tmp_path: Path) -> None:
    found = image_size.measure(archive(tmp_path, bytes(5_000_000), bytes(3_000_000)))
    assert (found.unpacked, found.ours) == (8_000_000, 3_000_000)
    assert 0 < found.packed < 100_000


def test_page_is_written_and_known_again() -> None:
    size = image_size.Size(unpacked=222_000_000, packed=73_000_000, ours=75_000_000)
    page = image_size.written(size, PAGE)
    assert image_size.told(page) == [222, 73, 75]
    assert page.startswith("Size:") and page.endswith("More.\n")
    assert image_size.written(size, page) == page
    assert not image_size.differs(size, page)


@pytest.mark.parametrize(("unpacked", "off"), [(222_000_000, False), (210_000_000, False), (260_000_000, True)])
def test_page_that_is_off_by_more_than_a_tenth_differs(unpacked: int, off: bool) -> None:
    page = image_size.written(image_size.Size(unpacked=222_000_000, packed=73_000_000, ours=75_000_000), PAGE)
    assert image_size.differs(image_size.Size(unpacked=unpacked, packed=73_000_000, ours=75_000_000), page) is off
    assert image_size.differs(image_size.Size(unpacked=unpacked, packed=73_000_000, ours=75_000_000), PAGE)


def test_tool_writes_and_then_agrees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "image.md"
    page.write_text(PAGE)
    monkeypatch.setattr(image_size, "PAGE", page)
    made = str(archive(tmp_path, bytes(30_000_000), bytes(20_000_000)))
    assert image_size.main([made, "--check"]) == 1
    assert image_size.main([made]) == 0
    assert "50 MB on a node" in page.read_text()
    assert image_size.main([made, "--check"]) == 0


def test_real_page_tells_three_sizes_and_the_image_of_a_user_is_the_example() -> None:
    page = image_size.PAGE.read_text()
    whole, packed, ours = image_size.told(page)
    assert whole > ours > 0 and whole > packed > 0
    example = (ROOT / "examples/image/Dockerfile").read_text().splitlines()
    lines = [line for line in example if line and not line.startswith("#")]
    assert len(lines) <= 5
    assert "```dockerfile\n" + "\n".join(lines) + "\n```" in page
