"""Packet filters inside a pod's network namespace, which end by themselves.

Every rule matches through a set whose elements carry a timeout, so the kernel forgets them at the deadline although
nobody lives to ask for it; the rules that stay behind then match nothing, and go with the pod. Whoever still lives at
the deadline takes the table away as well.

Guarantees: only our own table is touched; loopback always passes, so a replica's own processes still talk to each
other. `remove` is safe to repeat. Does not: reach packets of established flows that skip the namespace's hooks (there
are none in a pod).
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deathless.base.errors import Internal, InvalidArgument

TABLE: Final = "deathless_drill"
# ICMP, TCP, UDP, ICMPv6, SCTP; by number, for an image may lack /etc/protocols.
PROTOCOLS: Final = (1, 6, 17, 58, 132)
PORTS_MAX: Final = 32
TOOL_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What is to be dropped, in both directions."""

    everything: bool = False  # all but loopback
    served: tuple[int, ...] = ()  # TCP ports that replicas serve each other on: connections both ways
    called: tuple[int, ...] = ()  # TCP ports of what this pod calls


def ruleset(cut: Cut, timeout_s: float) -> str:
    """Give the nft script that makes the table anew.

    Args:
        cut: at least one kind of thing to drop.
        timeout_s: when the kernel forgets the elements, whole seconds are rounded up.

    Raises: InvalidArgument.
    """
    served, called = check_ports(cut.served), check_ports(cut.called)
    if not (cut.everything or served or called):
        raise InvalidArgument("nothing to cut off", remedy="name ports, or cut everything")
    if timeout_s <= 0:
        raise InvalidArgument(f"a cut lasts some time, not {timeout_s:g} s")
    timeout = f"timeout {math.ceil(timeout_s)}s"
    lines = [f"table inet {TABLE}", f"delete table inet {TABLE}", f"table inet {TABLE} {{"]
    for name, kind, elements in (
        ("protocols", "inet_proto", PROTOCOLS if cut.everything else ()),
        ("served", "inet_service", served),
        ("called", "inet_service", called),
    ):
        inside = f" elements = {{ {', '.join(f'{one} {timeout}' for one in elements)} }};" if elements else ""
        lines.append(f"  set {name} {{ type {kind}; flags timeout;{inside} }}")
    for chain, hook, device, far in (("incoming", "input", "iif", "sport"), ("outgoing", "output", "oif", "dport")):
        lines += [
            f"  chain {chain} {{",
            f"    type filter hook {hook} priority -300; policy accept;",
            f"    {device} lo accept",
            "    meta l4proto @protocols drop",
            "    tcp sport @served drop",
            "    tcp dport @served drop",
            f"    tcp {far} @called drop",
            "  }",
        ]
    return "\n".join([*lines, "}", ""])


def check_ports(ports: Sequence[int]) -> tuple[int, ...]:
    """Give the ports in order, each once. Raises: InvalidArgument."""
    if len(ports) > PORTS_MAX:
        raise InvalidArgument(f"at most {PORTS_MAX} ports are cut off at once")
    for port in ports:
        if not 0 < port < 65536:
            raise InvalidArgument(f"{port} is no port")
    return tuple(sorted(set(ports)))


class NetworkNamespace:
    """A pod's network namespace, held open: it stays reachable after the process it was found by has ended."""

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        self.descriptor = os.open(proc / str(pid) / "ns" / "net", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Let go of it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def is_the_nodes(self, init: Path) -> bool:
        """True for a pod on the node's own network, or ours: filters there would hit more than the pod.

        Args:
            init: the node's first process below /proc, for its namespace; where that is hidden, ours alone counts.
        """
        theirs = os.fstat(self.descriptor)
        for process in (init, Path("/proc/self")):
            with contextlib.suppress(PermissionError):
                found = (process / "ns" / "net").stat()
                if (found.st_dev, found.st_ino) == (theirs.st_dev, theirs.st_ino):
                    return True
        return False

    def nft(self, script: str) -> None:
        """Run an nft script inside.

        One that takes longer than TOOL_TIMEOUT_S is killed and waited for. If the kernel keeps it even then, the pod's
        deadline ends us, and what the filters match times out in the kernel.

        Raises: Internal with what nft said, or that it did not end.
        """
        command = ["nsenter", f"--net=/proc/self/fd/{self.descriptor}", "--", "nft", "-f", "-"]
        try:
            done = subprocess.run(  # noqa: S603 - a fixed command; the script is ours, its addresses are parsed
                command,
                input=script.encode(),
                capture_output=True,
                check=False,
                timeout=TOOL_TIMEOUT_S,
                pass_fds=[self.descriptor],
            )
        except subprocess.TimeoutExpired:
            raise Internal(
                f"nft in the pod's network namespace did not end within {TOOL_TIMEOUT_S:g} s and was killed;"
                " a filter that it may have set ends by its own timeout"
            ) from None
        if done.returncode != 0:
            raise Internal(f"nft in the pod's network namespace: {done.stderr.decode(errors='replace')[:500].strip()}")

    def cut(self, what: Cut, timeout_s: float) -> None:
        """Drop from now on, for at most `timeout_s`. Raises: InvalidArgument, Internal."""
        self.nft(ruleset(what, timeout_s))

    def remove(self) -> None:
        """Take our table away; it need not be there. Raises: Internal."""
        self.nft(f"table inet {TABLE}\ndelete table inet {TABLE}\n")
