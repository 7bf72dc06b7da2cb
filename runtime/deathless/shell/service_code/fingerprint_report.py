"""The fingerprint of a service's code without running it: what an operator compares before it rolls an image.

Guarantees: the same 16 bytes that a worker with this code and these limits would write into cuts and checkpoints. Does
not: read a log.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from deathless.base.config import PeerConfig
from deathless.base.errors import InvalidConfig
from deathless.base.limits import Limits
from deathless.base.shards import Sharding
from deathless.codec.untrusted import read_json
from deathless.shell.disk.small_files import read_small
from deathless.shell.service_code.fingerprint import describe, fingerprint_of
from deathless.shell.service_code.loading import load_service


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeCheck:
    """What was found."""

    service: str
    module: str
    fingerprint: str  # hexadecimal
    parts: dict[str, str]  # what it is made of

    @property
    def message(self) -> str:
        """One line of JSON, for a termination message."""
        told = {"service": self.service, "module": self.module, "fingerprint": self.fingerprint}
        return msgspec.json.encode(told).decode()


class _Configured(msgspec.Struct, frozen=True):
    """What of a ReplicaConfig, whole or shared, is looked at."""

    module: str = ""
    limits: dict[str, int | float] = {}
    shards: int = 1
    peers: tuple[PeerConfig, ...] = ()


def check_code(
    module: str | None, path: str, limits: str = "", *, shards: int | None = None, peers: str = ""
) -> CodeCheck:
    """Find the fingerprint of a module's service.

    Args:
        module: as `load_service` takes it; None: the one that the config names.
        path: of a ReplicaConfig, whole or shared, whose limits count; with a module it need not be there.
        limits: JSON that counts instead of the config's.
        shards: of the service, instead of the config's.
        peers: JSON with the shards of other services by name, instead of the config's.

    Raises: InvalidConfig, InvalidService.
    """
    configured = _Configured() if module and not Path(path).exists() else _read(path)
    module = module or configured.module
    if not module:
        raise InvalidConfig(f"{path} names no module")
    service = load_service(module)
    sharding = Sharding(
        shards=shards or configured.shards,
        peers=_peers(peers) if peers else {peer.name: peer.shards for peer in configured.peers},
    )
    counted = _limits(limits.encode() or msgspec.json.encode(configured.limits), path)
    parts = describe(service, counted, sharding)
    return CodeCheck(service=service.name, module=module, fingerprint=fingerprint_of(parts).hex(), parts=parts)


def _read(path: str) -> _Configured:
    try:
        return read_json(read_small(path), _Configured)
    except OSError as error:
        raise InvalidConfig(f"{path}: {error.strerror}", remedy="name a MODULE, or --config FILE") from None
    except msgspec.MsgspecError as error:
        raise InvalidConfig(f"{path}: {error}") from None


def _limits(told: bytes, path: str) -> Limits:
    try:
        return read_json(told, Limits)
    except msgspec.MsgspecError as error:
        raise InvalidConfig(f"{path}: limits: {error}") from None


def _peers(told: str) -> dict[str, int]:
    try:
        return read_json(told.encode(errors="replace"), dict[str, int])
    except msgspec.MsgspecError as error:
        raise InvalidConfig(f"--peers: {error}") from None
