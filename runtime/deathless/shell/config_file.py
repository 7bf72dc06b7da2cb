"""Reads a replica's config: the file that the supervisor and each of its processes is started with.

Guarantees: a config, or InvalidConfig that names file and field. Does not: find the file (`shell.target`), or fill in
what a pod knows (`shell.pod`). May import base and codec.
"""

from __future__ import annotations

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidConfig
from deathless.codec.untrusted import read_json
from deathless.shell.small_files import read_small


def read_config(path: str) -> ReplicaConfig:
    """Read a replica's config. Raises: InvalidConfig naming file and field."""
    try:
        return read_json(read_small(path), ReplicaConfig)
    except OSError as error:
        raise InvalidConfig(f"{path}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise InvalidConfig(f"{path}: {error}") from None
