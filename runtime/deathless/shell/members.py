"""members/<replica>.json: where each replica is reached. A hint for finding each other, never a truth.

Written by a supervisor under a temporary name and renamed; read by supervisors, clients and tools.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec


class Member(msgspec.Struct, frozen=True):
    """Addresses are host:port, empty where there is none."""

    replica: str
    control: str
    client: str = ""
    replication: str = ""
    ingress: str = ""
    pid: int = 0


def write_member(directory: str, member: Member) -> None:
    """Announce a replica, replacing what it announced before."""
    folder = Path(directory) / "members"
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{member.replica}.{os.getpid()}"
    temporary.write_bytes(msgspec.json.encode(member))
    temporary.replace(folder / f"{member.replica}.json")


def read_members(directory: str) -> dict[str, Member]:
    """Give all announced replicas by name; what can't be read is left out."""
    found: dict[str, Member] = {}
    for path in sorted((Path(directory) / "members").glob("*.json")):
        try:
            member = msgspec.json.decode(path.read_bytes(), type=Member)
        except (OSError, msgspec.MsgspecError):
            continue
        found[member.replica] = member
    return found


def remove_member(directory: str, replica: str) -> None:
    """Take a replica's announcement back."""
    (Path(directory) / "members" / f"{replica}.json").unlink(missing_ok=True)
