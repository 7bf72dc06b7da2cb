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
from deathless.shell.service_code.fingerprint import describe
from deathless.shell.service_code.import_trial import load_tried
from deathless.shell.service_code.kept_code import is_kept


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeCheck:
    """What was found."""

    service: str
    module: str
    fingerprint: str  # hexadecimal
    parts: dict[str, str]  # what it is made of
    spellings: tuple[str, ...] = ()  # all fingerprints that mean this code, that of older releases among them
    kept: bool | None = None  # is the code kept with the log? None: no directory was named

    @property
    def message(self) -> str:
        """One line of JSON, for a termination message."""
        told: dict[str, object] = {"service": self.service, "module": self.module, "fingerprint": self.fingerprint}
        return msgspec.json.encode(told | {"spellings": self.spellings}).decode()


class _Configured(msgspec.Struct, frozen=True):
    """What of a ReplicaConfig, whole or shared, is looked at."""

    module: str = ""
    directory: str = ""
    limits: dict[str, int | float] = {}
    shards: int = 1
    peers: tuple[PeerConfig, ...] = ()


def check_code(
    module: str | None,
    path: str,
    limits: str = "",
    *,
    shards: int | None = None,
    peers: str = "",
    directory: str = "",
) -> CodeCheck:
    """Find the fingerprint of a module's service.

    Args:
        module: as `load_service` takes it; None: the one that the config names.
        path: of a ReplicaConfig, whole or shared, whose limits count; with a module it need not be there.
        limits: JSON that counts instead of the config's.
        shards: of the service, instead of the config's.
        peers: JSON with the shards of other services by name, instead of the config's.
        directory: of the shard, to tell whether the code is kept there, instead of the config's; empty in both: that is
            not told.

    Raises: InvalidConfig, InvalidService.
    """
    configured = _Configured() if module and not Path(path).exists() else _read(path)
    module = module or configured.module
    if not module:
        raise InvalidConfig(f"{path} names no module")
    service = load_tried(module)
    sharding = Sharding(
        shards=shards or configured.shards,
        peers=_peers(peers) if peers else {peer.name: peer.shards for peer in configured.peers},
    )
    counted = _limits(limits.encode() or msgspec.json.encode(configured.limits), path)
    code = describe(service, counted, sharding)
    ours = code.fingerprint
    directory = directory or configured.directory
    return CodeCheck(
        service=service.name,
        module=module,
        fingerprint=ours.hex(),
        parts=code.parts,
        spellings=tuple(sorted(each.hex() for each in code.spellings)),
        kept=is_kept(directory, ours) if directory else None,
    )


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
