"""Who services are once they are forked: others than the originals, who know each other as the originals did; pure.

A forked service has another service id and incarnation, or it would depose or fence the original. So whoever it sends
to would refuse it (PeerReplaced). Outside of the fork that is right; inside, each table of peers names the new ones in
the very sessions of the old ones. Positions, and with them what is sent again and what is known already, stay.

A service that did not take the original for who it is (it was created anew, and not adopted) does not take the forked
one for it either.

Does not: draw ids (the shell does), or decide where the logs are cut (core.replica.fork_cut). Imports codec.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from deathless.codec.snapshot import PeerRecord


class ForkedService(msgspec.Struct, frozen=True):
    """Who a service is, and who the forked one is."""

    service_id: bytes
    incarnation: int
    forked_id: bytes
    forked_incarnation: int


def peers_in_fork(peers: Iterable[PeerRecord], forked: Mapping[str, ForkedService]) -> list[PeerRecord]:
    """Give the table of peers of a forked service.

    Args:
        peers: as the original has it at its cut.
        forked: the services of the fork, by name.
    """
    return [_in_fork(record, forked.get(record.service)) for record in peers]


def _in_fork(record: PeerRecord, forked: ForkedService | None) -> PeerRecord:
    if forked is None or (record.service_id, record.incarnation) != (forked.service_id, forked.incarnation):
        return record
    return msgspec.structs.replace(record, service_id=forked.forked_id, incarnation=forked.forked_incarnation)
