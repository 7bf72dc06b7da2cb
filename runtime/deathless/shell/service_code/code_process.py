"""Describes an author's code in a process of its own, which imports it: who asks keeps running whatever that code does.

Guarantees: an answer, or the error that loading it raises. Does not: say which code is the right one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError, Internal
from deathless.base.topics.settings import check_kept
from deathless.core.client.events import error_of
from deathless.engine.replica.failures import as_ours
from deathless.shell.service_code.description import Description
from deathless.shell.service_code.fingerprint import describe
from deathless.shell.service_code.loading import load_configured

MODULE: Final = "deathless.shell.service_code.code_process"


class _Answer(msgspec.Struct):
    """What the process that looked into the code says."""

    parts: dict[str, str] = {}
    former: dict[str, str] = {}
    files: dict[str, str] = {}
    code: str = ""  # of the error; empty: there was none
    error: str = ""
    advice: str = ""


def describe_code_of(config: ReplicaConfig, environment: Mapping[str, str]) -> Description:
    """Describe the code of a config in a process of its own, which imports it.

    Args:
        config: names the code.
        environment: of that process, the whole of it.

    Raises: what loading it raises.
    """
    told = {**environment, "TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONUNBUFFERED": "1"}
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as pipe:
        command = [sys.executable, "-m", MODULE, str(writer)]
        nowhere = subprocess.DEVNULL  # what the author's module prints at its import stands in the replicas' logs
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere, pass_fds=(writer,), env=told
        ) as process:
            os.close(writer)
            assert process.stdin is not None
            with process.stdin as words:
                words.write(msgspec.json.encode(config))
            data = pipe.read()
    if not data:
        raise Internal(f"the process that reads the code ended with {process.returncode}, and said nothing")
    answer = msgspec.json.decode(data, type=_Answer)
    if answer.code:
        raise _told(answer)
    files = {name: Path(path) for name, path in answer.files.items()}
    return Description(answer.parts, answer.former, files)


def _told(answer: _Answer) -> DeathlessError:
    error = error_of(answer.code, answer.error)
    error.advice = answer.advice
    return error


def main(arguments: list[str]) -> None:
    """Describe the code of the config on standard input; the answer goes to the descriptor that is named."""
    config = msgspec.json.decode(sys.stdin.buffer.read(), type=ReplicaConfig)
    try:
        service = load_configured(config)
        check_kept([*service.topics], config.drivers)
        code = describe(service, config.make_limits(), config.sharding)
        answer = _Answer(code.parts, code.former, {name: str(path) for name, path in code.files.items()})
    except Exception as error:  # noqa: BLE001  the author's module may raise anything
        ours = as_ours(error, "reading the code")
        answer = _Answer(code=ours.code, error=ours.message, advice=ours.advice)
    with os.fdopen(int(arguments[0]), "wb") as pipe:
        pipe.write(msgspec.json.encode(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
