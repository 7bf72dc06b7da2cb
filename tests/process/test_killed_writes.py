"""What a kernel leaves of a write whose process it kills: whole pages, as `codec.frame_remains` relies on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

PAGE = 4096
SIZE = 32 << 20  # so large that most kills come in the midst of a write
CUTS = 5  # so many writes that were cut are looked at
KILLS_MAX = 500
WRITER = f"""\
import os, sys
descriptor = os.open(sys.argv[1], os.O_WRONLY)
value = 0
while True:
    value = value % 255 + 1
    data = bytes([value]) * {SIZE}
    if value == 1:
        os.write(1, b"1")
    os.pwrite(descriptor, data, 0)
"""


def pages_of_killed_write(path: Path, chance: random.Random) -> list[bytes]:
    """Write over zeros, kill the writer at some moment, and give what stands in the file, page by page."""
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, SIZE)
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.read(1) == b"1"
        for _ in range(chance.randrange(100_000)):
            pass
        writer.send_signal(signal.SIGKILL)
    data = path.read_bytes()
    return [data[at : at + PAGE] for at in range(0, SIZE, PAGE)]


def test_a_kill_cuts_a_write_between_pages_and_never_within_one(tmp_path: Path) -> None:
    chance = random.Random(7)
    cuts = 0
    for _ in range(KILLS_MAX):
        pages = pages_of_killed_write(tmp_path / "written", chance)
        assert all(page == page[:1] * PAGE for page in pages), "a page is as it was before, or as it was written"
        cuts += len({page[0] for page in pages}) > 1
        if cuts == CUTS:
            break
    assert cuts == CUTS, "kills came in the midst of writes"
