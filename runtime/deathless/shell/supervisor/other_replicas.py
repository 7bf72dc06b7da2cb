"""The other replicas of a service as one supervisor meets them: who has announced itself, who may speak, whom it tells.

    members/ --> MembersSeen, and connections to the others' control ports
             '-> who shows by its announcement that it stands in this directory

Guarantees: what a later instance of our replica announces is told as that. Does not: judge what others say
(`core.supervisor.machine` does).
"""

from __future__ import annotations

import os
from collections.abc import Callable

from deathless.base.config import ReplicaConfig
from deathless.codec.wire import Type, struct_packet
from deathless.core.supervisor.detection import Report
from deathless.core.supervisor.events import Event, MembersSeen, Superseded
from deathless.shell.directory.members import Board, Member
from deathless.shell.net.listening import announced
from deathless.shell.net.proof import Door, Secrets
from deathless.shell.supervisor.other_supervisors import Peers


class OtherReplicas:
    """See the module.

    Args:
        config: of our replica.
        tell: takes what is found out.
        changed: called when a connection to another supervisor stands.
    """

    def __init__(self, config: ReplicaConfig, tell: Callable[[Event], None], changed: Callable[[], None]) -> None:
        self._config = config
        self._tell = tell
        self._members: dict[str, Member] = {}  # as members/ was seen last
        self.board = Board(
            config.directory, config.replica, self._seen, config.instance, lambda later: tell(Superseded(later))
        )
        self.peers = Peers(config, changed, self.board.ask_later)
        self.door = Door(Secrets(config.directory, in_thread=True), lambda name: self._members.get(name))  # noqa: PLW0108  it is replaced

    def start(self) -> None:
        """Begin to look."""
        self.door.secrets.sweep()
        self.board.start()

    def close(self, *, withdraw: bool) -> None:
        """End all connections; `withdraw` takes our announcement back."""
        self.peers.close()
        self.door.secrets.close()
        self.board.close(withdraw=withdraw)

    def announce(self, report: Report) -> None:
        """Say where our replica is reached."""
        config = self._config
        ingress = announced(config.ingress_listen, config.advertise_host) if config.ingress_listen else ""
        addresses = (report.control, report.client, report.replication, ingress)
        self.board.announce(
            Member(report.replica, *addresses, os.getpid(), report.instance, report.generation, proves=True)
        )

    def tell(self, report: Report) -> None:
        """Tell every other supervisor that is connected how our replica is."""
        self.peers.tell(struct_packet(Type.REPORT, report))

    def _seen(self, members: dict[str, Member]) -> None:
        self._members = members
        mine = members.get(self._config.replica)
        ours = mine is not None and mine.instance == self._config.instance
        self._tell(MembersSeen(frozenset(members), mine.ingress if mine is not None and ours else None))
        self.peers.meet(members)
