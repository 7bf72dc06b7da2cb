"""A replica's config: the file that the supervisor and each of its processes is started with.

On a laptop the runner writes it. It may hold a token, so it is for its user alone, and whole or not there. Where it
says what it should it is not written again: a disk that is full or read-only just now keeps no replica from its start.

Guarantees: who reads gets a config, or InvalidConfig that names file and field. Does not: fill in
what a pod knows (`shell.pod.pod_config`).
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidConfig
from deathless.codec.untrusted import read_json
from deathless.shell.disk.durable import naming
from deathless.shell.disk.small_files import read_small


def config_path(directory: str | Path, replica: str) -> Path:
    """Where a replica's config stands."""
    return Path(directory) / "replicas" / replica / "config.json"


def read_config(path: str) -> ReplicaConfig:
    """Read a replica's config. Raises: InvalidConfig naming file and field."""
    try:
        return read_json(read_small(path), ReplicaConfig)
    except OSError as error:
        raise InvalidConfig(f"{path}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise InvalidConfig(f"{path}: {error}") from None


def stands(config: ReplicaConfig) -> bool:
    """Does the file say just this? Raises: OSError."""
    try:
        return read_small(config_path(config.directory, config.replica)) == _text_of(config)
    except FileNotFoundError:
        return False


def write_config(config: ReplicaConfig) -> None:
    """Have the file say this. Raises: OSError."""
    if not stands(config):
        write_private(config_path(config.directory, config.replica), _text_of(config))


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only this user may read, whole or not at all. Raises: OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with naming(temporary), os.fdopen(descriptor, "wb") as file:
            file.write(data)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _text_of(config: ReplicaConfig) -> bytes:
    return msgspec.json.format(msgspec.json.encode(config), indent=2)
