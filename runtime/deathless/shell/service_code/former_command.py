"""How a process is started that runs the code that was kept with a log: its interpreter, its copy, its module.

Guarantees: an interpreter of the version that ran the code, and a copy that is as it was written, or
FormerCodeMissing. Does not: compare libraries (the process does, by the fingerprint of what it loads), start that
process.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

from deathless.base.errors import FormerCodeMissing
from deathless.shell.service_code.code_record import FOLDER, PARTS, recorded
from deathless.shell.service_code.kept_code import modules_in

ASK_S: Final = 30.0
"""An interpreter that has not told its version by then is taken for gone."""
_VERSION: Final = "import platform, sys; print(sys.implementation.name, platform.python_version())"


class FormerCommand(NamedTuple):
    """How a process with kept code is started: what it calls first is `loading.load_kept(folder, module)`."""

    interpreter: str  # path of the executable
    folder: Path  # of the kept code: record and files
    module: str  # as the config named it when the code was kept


def former_command(directory: str | Path, fingerprint: bytes) -> FormerCommand:
    """Tell how a process with the code of this fingerprint is started.

    Args:
        directory: of the shard.
        fingerprint: as head's cut or a checkpoint names it.

    Raises: FormerCodeMissing when it is not kept, was changed, or no interpreter of its version is there any more.
    """
    found = recorded(directory, fingerprint)
    if found is None or found.folder is None:
        raise FormerCodeMissing(f"the code {fingerprint.hex()[:12]} is not kept in {Path(directory) / FOLDER}")
    modules_in(found.folder)
    record = found.record
    wanted = record.parts.get("interpreter", "an unknown interpreter")
    asked = {each: _version_of(each) for each in dict.fromkeys((record.executable, sys.executable)) if each}
    for interpreter, version in asked.items():
        if version == wanted:
            return FormerCommand(interpreter, found.folder, record.module)
    told = ", ".join(f"{each} is {version or 'gone'}" for each, version in asked.items())
    raise FormerCodeMissing(
        f"the code {fingerprint.hex()[:12]} was run by {wanted}, and {told}",
        remedy=f"install {wanted} with the same libraries (see {found.folder / PARTS}), and use it",
    )


def _version_of(executable: str) -> str:
    """Ask an interpreter what it is; empty: it is gone, or does not say."""
    if executable == sys.executable:
        return f"{sys.implementation.name} {platform.python_version()}"
    command = [executable, "-I", "-c", _VERSION]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
