"""From a pod's environment and its shared config file to the config of one replica.

    /etc/deathless/replica.json   what all replicas of the service share
    POD_NAME=bank-2               replica r2
    POD_UID                       its instance: two pods of one name may live at once
    POD_IP                        announced; its family decides which "every address" is listened on
    POD_NAMESPACE                 where its pod is
    /etc/deathless-operator-token/token   what operators show at the HTTP ingress; without it nobody is one there

Guarantees: `pod_config` is a function of file and environment; what is missing or wrong is named. Does not: start
anything. Imports base.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidConfig
from deathless.codec.untrusted import read_json
from deathless.shell.directory.instance import check_instance
from deathless.shell.disk.small_files import read_small

CONFIG_PATH: Final = "/etc/deathless/replica.json"
TOOL: Final = "tool"  # stands for a replica's name where a tool reads what replicas share
TERMINATION_PATH: Final = "/dev/termination-log"
OPERATOR_TOKEN_PATH: Final = "/etc/deathless-operator-token/token"  # noqa: S105 - a path; the operator mounts it there
PORTS: Final = {
    "client_listen": 7401,
    "replication_listen": 7402,
    "control_listen": 7403,
    "ingress_listen": 8080,
    "health_listen": 8081,
}
_NAME: Final = re.compile(r"(?P<set>[a-z0-9]([-a-z0-9.]*[a-z0-9])?)-(?P<ordinal>\d{1,6})")
_OWN: Final = ("replica", "instance", "advertise_host")


def set_and_ordinal(pod: str) -> tuple[str, int]:
    """Take the name of a StatefulSet's pod apart. Raises: InvalidConfig."""
    found = _NAME.fullmatch(pod)
    if found is None:
        raise InvalidConfig(f"POD_NAME {pod!r} is not NAME-K, as a StatefulSet names its pods")
    return found["set"], int(found["ordinal"])


def pod_of(set_name: str, replica: str) -> str:
    """Name of the pod of replica `rK`; empty when it has no such name."""
    ordinal = replica.removeprefix("r")
    return f"{set_name}-{ordinal}" if replica.startswith("r") and ordinal.isdecimal() else ""


def read_pod_config(path: str, environment: Mapping[str, str]) -> ReplicaConfig:
    """Read the shared file and make it this pod's. Raises: InvalidConfig."""
    return _with_token(pod_config(_read_shared(path), environment, path))


def read_shared_config(path: str) -> ReplicaConfig:
    """Read the shared file for a tool, which is no replica: `deathless adopt -f /etc/deathless/replica.json`.

    Raises: InvalidConfig.
    """
    return _with_token(read_plain_config(path))


def read_plain_config(path: str) -> ReplicaConfig:
    """Read the shared file alone, for what speaks to nobody: no secret that it names is read. Raises: InvalidConfig."""
    try:
        return msgspec.convert({"replica": TOOL} | _read_shared(path), ReplicaConfig)
    except msgspec.ValidationError as error:
        raise InvalidConfig(f"{path}: {error}") from None


def _read_shared(path: str) -> dict[str, object]:
    try:
        return read_json(read_small(path), dict[str, object])
    except OSError as error:
        raise InvalidConfig(f"{path}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise InvalidConfig(f"{path}: {error}") from None


def _with_token(config: ReplicaConfig) -> ReplicaConfig:
    return msgspec.structs.replace(config, token=_read_token(config)) if config.token_file else config


def pod_config(shared: Mapping[str, object], environment: Mapping[str, str], path: str = CONFIG_PATH) -> ReplicaConfig:
    """Give the config of the replica that runs in this pod.

    Args:
        shared: a ReplicaConfig without what tells one replica from another.
        environment: POD_NAME, POD_UID and POD_IP.
        path: of the file, for messages.

    Raises: InvalidConfig naming what is missing or wrong.
    """
    for name in _OWN:
        if name in shared:
            raise InvalidConfig(f"{path}: {name} comes from the pod's environment", remedy="omit it")
    missing = [name for name in ("POD_NAME", "POD_UID", "POD_IP") if not environment.get(name)]
    if missing:
        raise InvalidConfig(
            f"{', '.join(missing)} must be in the environment",
            remedy="the operator's pods have them from the downward API; see docs/design/0005-kubernetes.md",
        )
    _, ordinal = set_and_ordinal(environment["POD_NAME"])
    host = environment["POD_IP"]
    try:
        every = "[::]" if ipaddress.ip_address(host).version == 6 else "0.0.0.0"
    except ValueError:
        raise InvalidConfig(f"POD_IP {host!r} is not an address") from None
    fields: dict[str, object] = {
        "ingress_tls": "Server",
        "announce_kubernetes": True,
        "termination_file": TERMINATION_PATH,
        "operator_token_file": OPERATOR_TOKEN_PATH,
        **shared,
        "replica": f"r{ordinal}",
        "instance": environment["POD_UID"],
        "advertise_host": host,
    }
    for name, port in PORTS.items():
        given = fields.get(name, f":{port}")
        # A host that is named stays; an empty text is a port that is not wanted.
        fields[name] = f"{every}{given}" if isinstance(given, str) and given.startswith(":") else given
    try:
        config = msgspec.convert(fields, ReplicaConfig)
    except msgspec.ValidationError as error:
        raise InvalidConfig(f"{path}: {error}") from None
    check_instance(config.instance)
    return config


def _read_token(config: ReplicaConfig) -> str:
    try:
        token = Path(config.token_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"token_file {config.token_file}: {getattr(error, 'strerror', None) or error}") from None
    if not token:
        raise InvalidConfig(f"token_file {config.token_file} is empty")
    return token


def hand_over(config: ReplicaConfig) -> str:
    """Put a config where this process's children read it, in memory; gives the path.

    A file would leave the token on a disk, and the root file system of a pod is read-only.
    """
    descriptor = os.memfd_create("deathless-replica.json")  # closed by the end of this process; children don't get it
    os.write(descriptor, msgspec.json.encode(config))
    return f"/proc/{os.getpid()}/fd/{descriptor}"
