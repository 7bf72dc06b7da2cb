"""One replica as the first process of a pod: its config from the environment, its end told where Kubernetes looks.

    kernel --orphans, SIGTERM--> this process, a supervisor --> worker, ingress, announcer, health

Where its config says that other code is served beside it, head decides at each start what it is for: if the log is of
this image's code, the replica is one like others; else it is an upgrader from what the log is of.

Guarantees: processes whose parents died are taken note of, as process 1 must; SIGTERM before the supervisor listens for
it ends the process; an error that keeps it from starting stands in the termination file and is the exit code's; where
head can't be read, nothing is started that should be an upgrader. Does not: start again by itself (the kubelet does).
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import sys
from collections.abc import Mapping
from types import FrameType
from typing import Final, NoReturn

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError, LockUnavailable
from deathless.engine.replica.failures import as_ours
from deathless.shell.link.settings_file import SettingsFile
from deathless.shell.pod.pod_config import TERMINATION_PATH, hand_over, read_pod_config
from deathless.shell.process.logs import configure
from deathless.shell.service_code.code_process import describe_code_of
from deathless.shell.supervisor.supervisor import serve
from deathless.shell.supervisor.termination_message import leave_word
from deathless.shell.upgrade.planning import head_of, plan_upgrade

PR_SET_CHILD_SUBREAPER: Final = 36
LOOK_S: Final = 30.0  # a lock store that has not answered by then is asked again by the next start
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
        if config.former:
            config = what_it_is_for(config, os.environ)
        return asyncio.run(serve(config, hand_over(config), reaps=True, settings=settings))
    except (DeathlessError, OSError) as error:
        ours = as_ours(error, "supervisor")
        _LOG.error("supervisor stops", extra={"code": ours.code, "why": str(ours)})
        leave_word(word, str(ours))
        return ours


def what_it_is_for(config: ReplicaConfig, environment: Mapping[str, str]) -> ReplicaConfig:
    """Give the config of an upgrader where the log is of other code than ours, else the config as it is.

    Args:
        config: of this pod's replica; it says where former code is served.
        environment: of the process that describes our code, the whole of it.

    Raises: LockUnavailable where head can't be read in time; UpgradeRefused; what reading it, or our code, raises.
    """
    described = describe_code_of(config, environment, bounded=False)  # a replica starts as long as its code takes
    try:
        head = asyncio.run(asyncio.wait_for(head_of(config), LOOK_S))
    except TimeoutError:
        raise LockUnavailable(
            f"head could not be read within {LOOK_S:g} s, so nobody knows yet whether this pod is an upgrader"
        ) from None
    if head.is_of(config.directory, described):
        return config
    upgrade = plan_upgrade(config, head, described)
    _LOG.info("an upgrader", extra={"from_generation": upgrade.from_generation, "upgrade": upgrade.id})
    return msgspec.structs.replace(config, upgrade=msgspec.structs.replace(upgrade, former=config.former))


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    """SIGTERM before there is anything to stop: process 1 has no default for it."""
    sys.exit(0)
