"""Printing neither waits for whoever reads, nor raises what the disk says."""

import os
import subprocess
import sys
from pathlib import Path

import deathless
from deathless.shell.process.output import PatientStream


def test_pipe_that_nobody_reads_is_not_waited_for_and_what_was_dropped_is_told() -> None:
    reader, writer = os.pipe()
    stream = PatientStream(writer)
    text = b"x" * 100_000
    for _ in range(20):
        assert stream.write(text) == len(text)
    assert stream.dropped > 0
    while len(os.read(reader, 1 << 16)) == 1 << 16:
        pass
    stream.write(b"again\n")
    assert stream.dropped == 0
    told = os.read(reader, 1 << 16)
    assert told.startswith(b"(")
    assert told.endswith(b"again\n")
    os.close(reader)
    assert stream.write(b"nobody\n") == 7
    os.close(writer)
    assert stream.write(b"nothing\n") == 8


def test_full_disk_and_close_are_not_seen_by_who_prints() -> None:
    program = (
        "from deathless.shell.process.output import never_wait; import sys; never_wait()\n"
        "print('x' * 10000, flush=True); sys.stdout.close(); print('y'); sys.stderr.write('done\\n')"
    )
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, check=True)
    assert done.stderr == b"done\n"


def test_every_process_of_a_replica_prints_so_from_its_start() -> None:
    """One that waited for a reader of the pipe that all share would stop answering, whatever its work is."""
    package = Path(deathless.__file__).parent
    processes = [
        path
        for folder in ("shell", "drivers")
        for path in (package / folder).rglob("*.py")
        if "    configure(" in path.read_text() and '__name__ == "__main__"' in path.read_text()
    ]
    assert len(processes) >= 8
    for path in processes:
        assert '__name__ == "__main__":\n    never_wait()\n' in path.read_text(), path.name
    for command in ("replica", "up"):
        assert "never_wait()" in (package / "cli" / "run" / f"{command}.py").read_text(), "it looks after a replica"
