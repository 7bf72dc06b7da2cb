"""What an upgrader makes of all that the former code held (execution.snapshot_migration decides what fits).

Code of a lower version than the one that serves knows nothing of that: what it is given has been lowered, by the code
that serves, in that one's process (execution.migration.lowering).

Guarantees: what has no place in the new code is refused by name, with counts. Does not: run in the worker's loop (a
thread does it, so that heartbeats go on).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from deathless.base.config import ReplicaConfig, UpgradeConfig
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.snapshot import Snapshot
from deathless.execution.author.service import Service
from deathless.execution.executor import Hide, nothing_hidden
from deathless.execution.interface.interface import encode_interface, interface_of
from deathless.execution.interface.misfit import Misfit
from deathless.execution.migration.ahead import Ahead
from deathless.execution.snapshot_migration import Migrated, migrate_snapshot
from deathless.shell.service_code.interface_record import needed
from deathless.shell.upgrade.packets import Back

SHOWN_MAX: Final = 8  # misfits that a refusal names; the rest are counted


class Migration:
    """Of one upgrade.

    Args:
        service: with the new code.
        config: of the replica.
        upgrade: what it is to make.
        seed: 32 bytes of the service.
        safeguards: all on, but in tests.
        hide: called around turns of suspended handlers that are run again; it must be for this thread.
    """

    def __init__(
        self,
        service: Service,
        config: ReplicaConfig,
        upgrade: UpgradeConfig,
        seed: bytes,
        safeguards: Safeguards = ALL_SAFEGUARDS,
        hide: Hide = nothing_hidden,
    ) -> None:
        self._service = service
        self._config = config
        self._upgrade = upgrade
        self._seed = seed
        self._hide = hide
        self._goes_back = service.version < upgrade.from_version and safeguards.lower_on_the_way_back

    @property
    def back(self) -> Back | None:
        """Give what the former code is asked for where the service goes back to an older version; None: it does not."""
        if not self._goes_back:
            return None
        interface = encode_interface(interface_of(self._service, self._config.make_limits()))
        return Back("", interface, self._upgrade.time_us, bytes.fromhex(self._upgrade.id))

    def look(self, snapshot: Snapshot, ahead: Ahead | None = None, gone: Collection[bytes] = ()) -> Migrated:
        """Migrate, and say what does not fit; see `migrate_snapshot`.

        Raises: UpgradeRefused where nobody knows what the former code was.
        """
        config, upgrade = self._config, self._upgrade
        before = needed(config.directory, bytes.fromhex(upgrade.from_fingerprint))
        return migrate_snapshot(
            snapshot,
            self._service,
            before,
            limits=config.make_limits(),
            seed=self._seed,
            time_us=upgrade.time_us,
            upgrade=bytes.fromhex(upgrade.id),
            sharding=config.sharding,
            lowered=self._goes_back,
            ahead=ahead,
            gone=gone,
            hide=self._hide,
        )


def told(misfits: list[Misfit]) -> str:
    """Say what does not fit, in one line."""
    more = f"; and {len(misfits) - SHOWN_MAX} more" if len(misfits) > SHOWN_MAX else ""
    return "; ".join(each.text for each in misfits[:SHOWN_MAX]) + more
