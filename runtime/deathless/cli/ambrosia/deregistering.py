"""`UnsafeDeregisterInstance NAME`: forgets an instance, and leaves its log where it is.

The original deletes what its tables say of an instance, whatever runs. Here that is the registration alone: the log
may be registered again with `-cs=A`, and `deathless erase` deletes it.

Guarantees: an instance of which a coordinator runs is not forgotten; exit code 0 and one line when it is done, 1 and
the reason otherwise. Does not: touch a log. Imports this folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from deathless.base.errors import DeathlessError
from deathless.cli.ambrosia.registrations import deregister, registration_of
from deathless.cli.output import show_error
from deathless.shell.operate.adoption import refuse_while_running

NAME: Final = "UnsafeDeregisterInstance"
HELP: Final = ("-h", "--help", "/h", "/help")


def main(home: Path, words: Sequence[str]) -> int:
    """Carry out a command line; gives the exit code.

    Args:
        home: folder of the launchers.
        words: behind the program's name: that of the instance.
    """
    if len(words) != 1 or words[0].lower() in HELP:
        print(f"Usage: {NAME} NAME")
        return 0 if words and words[0].lower() in HELP else 1
    try:
        found = registration_of(home, words[0])
        if found.directory.is_dir():
            refuse_while_running(str(found.directory))
        deregister(home, found)
    except DeathlessError as error:
        show_error(error)
        return 1
    print(f"The instance {found.instance} is deregistered. Its log stays in {found.directory}.")
    return 0
