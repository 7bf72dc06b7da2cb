"""What is kept of suspended handlers, in the words of a new version: by the functions that migrate states and messages.

Guarantees: a state, an argument or a name is given as `Migrator` and `Fitting` give it elsewhere. Does not: translate
what its author has not said how; the invocation that it is for does not fit then. Imports base and codec.
"""

from __future__ import annotations

from deathless.base.errors import InvalidService
from deathless.execution.author.changes import Carried
from deathless.execution.interface.interface import Interface
from deathless.execution.invocations.translation import Translation
from deathless.execution.migration.messages import Fitting, Waiting
from deathless.execution.migration.state import Migrator


class Versions(Translation):
    """From one version of a service to the next.

    Args:
        migrator: of its states.
        fitting: of its messages.
        before: interface of the version before.
    """

    def __init__(self, migrator: Migrator, fitting: Fitting, before: Interface) -> None:
        super().__init__(before.version)
        self._migrator = migrator
        self._fitting = fitting
        self._changes = migrator.service.declared

    def state(self, key: bytes, state: bytes) -> bytes:
        """See Translation. Raises: InvalidService where it can't be migrated."""
        passed = self._migrator.migrate(key, state)
        if passed is None:
            raise InvalidService("its state can't be migrated")
        if passed.key != key:
            raise InvalidService("its key is renamed, which can't be done while a handler holds it")
        return passed.state

    def handler(self, method: str) -> str:
        """See Translation; what was removed keeps its name, under which it fails."""
        return self._changes.name_now(method, self.version) or method

    def arguments(self, method: str, arguments: bytes) -> bytes:
        """See Translation. Raises: what does not fit."""
        return self._fitting.fit(Waiting("", method, b"", arguments)).arguments

    def activity(self, name: str) -> str:
        """As `handler`."""
        return self._changes.name_now(name, self.version) or name

    def schedule(self, name: str) -> str:
        """As `handler`."""
        return self._changes.name_now(name, self.version) or name

    def carried(self, method: str) -> Carried | None:
        """See Translation."""
        return self._changes.carried.get((method, self.version))
