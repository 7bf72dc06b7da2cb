"""What the launchers start: `python -m deathless.cli.ambrosia.entry NAME FOLDER [ARGUMENT ...]`.

Guarantees: the tool with that name runs, and its exit code is ours. Does not: anything else. Imports this folder.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str]) -> int:
    """Run a tool; gives its exit code.

    Args:
        arguments: its name, the folder of the launchers, and its own words.
    """
    name, home, *words = arguments
    folder = Path(home).absolute()
    if name == "Ambrosia":
        from deathless.cli.ambrosia.tool import main as run
    elif name == "ImmortalCoordinator":
        from deathless.cli.ambrosia.coordinator import main as run
    else:
        from deathless.cli.ambrosia.deregistering import main as run
    return run(folder, words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
