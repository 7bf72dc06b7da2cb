"""How a command asks before it does what can't be taken back.

Guarantees: nobody is taken to have agreed who was not asked: with --json, or where standard input is no terminal, it is
refused unless --yes is given. Does not: know --yes; who has it does not ask.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from deathless.base.errors import InvalidArgument


def confirmed(
    question: str, what: str, *, as_json: bool, show: Callable[[], object] | None = None, remedy: str = "add --yes"
) -> bool:
    """Ask a person; gives the answer, which is no unless one says yes.

    Args:
        question: with a question mark.
        what: needs a confirmation, as the subject of a sentence.
        as_json: standard output is for a program.
        show: prints what the answer is about, first.
        remedy: what whoever can't be asked does.

    Raises: InvalidArgument: there is nobody to ask.
    """
    if as_json or not sys.stdin.isatty():
        raise InvalidArgument(f"{what} needs a confirmation, and there is nobody to ask", remedy=remedy)
    if show is not None:
        show()
    return click.confirm(question, default=False)
