"""One replica as the first process of a pod: its config from the environment, its end told where Kubernetes looks.

    kernel --orphans, SIGTERM--> this process, a supervisor --> worker, ingress, announcer, health

Guarantees: processes whose parents died are taken note of, as process 1 must; SIGTERM before the supervisor listens for
it ends the process; an error that keeps it from starting stands in the termination file and is the exit code's. Does
not: start again by itself (the kubelet does).
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import sys
from types import FrameType
from typing import Final, NoReturn

from deathless.base.errors import DeathlessError
from deathless.engine.replica.failures import as_ours
from deathless.shell.link.settings_file import SettingsFile
from deathless.shell.pod.pod_config import TERMINATION_PATH, hand_over, read_pod_config
from deathless.shell.process.logs import configure
from deathless.shell.supervisor.supervisor import serve
from deathless.shell.supervisor.termination_message import leave_word

PR_SET_CHILD_SUBREAPER: Final = 36
_LOG: Final = logging.getLogger("deathless.replica")


def run(path: str) -> int | DeathlessError:
    """Run this pod's replica until it is stopped; gives 0, or the error that ended it.

    Args:
        path: of the shared config.
    """
    signal.signal(signal.SIGTERM, _end)
    # Where another process is the first of the pod, orphans of ours come here all the same.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    word = TERMINATION_PATH
    try:
        settings = SettingsFile(path)
        config = read_pod_config(path, os.environ)
        word = config.termination_file
        configure(config.log_level, config.replica, "supervisor")
        leave_word(word, "")
        return asyncio.run(serve(config, hand_over(config), reaps=True, settings=settings))
    except (DeathlessError, OSError) as error:
        ours = as_ours(error, "supervisor")
        _LOG.error("supervisor stops", extra={"code": ours.code, "why": str(ours)})
        leave_word(word, str(ours))
        return ours


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    """SIGTERM before there is anything to stop: process 1 has no default for it."""
    sys.exit(0)
