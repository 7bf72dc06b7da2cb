"""Scenarios around sessions (I2, I5): somebody speaks in one that is another's."""

from __future__ import annotations

from tests.sim.stage import end, make, primary_of, request_of

from deathless.base.safeguards import Safeguards
from deathless.codec.frames import Run
from deathless.codec.wire import Hello, encode_batch
from deathless.simulation.checkers import Violation
from deathless.simulation.workload.lab import SERVICE_NAME, encode_request
from deathless.simulation.world.sockets import Opened

TRIES = 40
PAUSE_US = 20_000


def thief(safeguards: Safeguards) -> list[Violation]:
    """A connection that registered nothing sends, in every client's session, the message that is expected next."""
    cluster = make(safeguards)
    node = primary_of(cluster)
    process = cluster.scheduler.process("thief", "thief", lambda _process, _error: None)
    message = encode_request(request_of("add", tag=""))
    clients = list(cluster.clients.values())

    def steal() -> None:
        for client in clients:
            machine = client.machine
            if machine.session and not machine.window.in_flight:
                run = Run(machine.session, machine.window.next_seq, machine.window.next_seq - 1, 1)
                link.send(encode_batch(run, len(message).to_bytes(4, "little"), message))

    process.start(lambda: None)
    link = Opened(
        cluster.network,
        process,
        f"{node.name}:1",
        Hello(1, "client", SERVICE_NAME, "thief", secret=b"not one of theirs"),
        received=lambda _packets: None,
        ready=lambda: None,
        lost=lambda: None,
    )
    for _ in range(TRIES):
        cluster.run_for(PAUSE_US)
        steal()
    return end(cluster)
