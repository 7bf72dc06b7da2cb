"""What clusters of several services share, and which service, or shard of one, each of them is.

Does not: make anything. May import execution and below, scheduler, network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from deathless.base.shards import Sharding, shard_name
from deathless.codec.peer_messages import Target
from deathless.execution.author.service import Service
from deathless.simulation.workload.codes import LabCode, codes_of
from deathless.simulation.workload.lab import lab
from deathless.simulation.world.network import Network
from deathless.simulation.world.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Of one cluster.

    Attributes:
        definition: the service that all replicas run, until they run the other code of it.
        directory: client addresses of all replicas, by the name of a service, or of its shard as handshakes say it.
        sharding: which shard of its service this cluster is.
    """

    scheduler: Scheduler
    network: Network
    definition: Service = lab
    directory: Mapping[str, list[str]] = field(default_factory=dict)
    sharding: Sharding = field(default_factory=Sharding)

    @property
    def service_name(self) -> str:
        """What the cluster is called in its record and in handshakes."""
        return shard_name(self.definition.name, self.sharding.shard, self.sharding.shards)

    @property
    def codes(self) -> tuple[LabCode, LabCode]:
        """The code that the service begins with, and the other one."""
        return codes_of(self.definition)

    def code_of(self, fingerprint: bytes) -> LabCode:
        """Give the code that the log calls this."""
        return next(code for code in self.codes if code.fingerprint == fingerprint)

    def other_code(self, code: LabCode) -> LabCode:
        """Give the one that a service of this code is upgraded to."""
        first, second = self.codes
        return second if code.fingerprint == first.fingerprint else first

    @property
    def target(self) -> Target:
        """What others send to when they send to this cluster."""
        return Target(self.definition.name, self.sharding.shard)

    def name_of(self, target: Target) -> str:
        """Give what another service, or a shard of it, is called in handshakes."""
        ours = self.sharding
        shards = ours.shards if target.service == self.definition.name else ours.peers.get(target.service, 1)
        return shard_name(*target, shards)
