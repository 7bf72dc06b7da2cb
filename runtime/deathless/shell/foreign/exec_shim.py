"""What a child of ours runs before it becomes an application: it ties its life to ours.

    python -I -S exec_shim.py PARENT COMMAND [ARGUMENT ...]

Why a program of its own: the kernel kills a child at its parent's death if the child asked for it, which it has to do
itself, between fork and exec, where a process with threads must not run Python. And the kernel means the thread that
forked: whoever starts this program does so from its main thread.

Guarantees: the command does not outlive PARENT, also where that died before it was asked; what Python ignores of
signals for itself, the command does not. Does not: import anything of ours, so that it starts at once; look for the
command's own children, which its process group has.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""An ignored signal stays ignored in what a process becomes, and in all that this starts."""
NOT_FOUND = 127
"""Exit code of a command that can't be run, as shells have it."""


def main(arguments: list[str]) -> int:
    """Become the command; gives an exit code where that can't be."""
    parent, *command = arguments
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        return 1
    for number in IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606 - a manifest's command, which is its own author's
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return NOT_FOUND


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
