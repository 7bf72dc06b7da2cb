"""The file with a replica's settings, and whether it says something else since the replica was started.

A file that is mounted from a ConfigMap of a former operator changes while the pod runs, a minute or two after the
ConfigMap; a container that starts again in between begins with the settings of before. It may then wait for ever for a
lock store that is not the service's any more. So a replica that has not served yet looks at the file again.

Guarantees: a file that can't be read, or holds no JSON, has not changed: it may be on the way. Does not: say what a
replica does about it (`supervisor`). Imports base.
"""

from __future__ import annotations

import msgspec

from deathless.base.errors import SettingsChanged
from deathless.base.settings_hash import settings_hash
from deathless.codec.untrusted import read_json
from deathless.shell.disk.small_files import read_small


class SettingsFile:
    """A settings file as it was when this was made.

    Args:
        path: of the file. It is looked at before the replica reads it, so a change in between is seen as one.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.hash = self._read()  # empty: it could not be read

    def has_changed(self) -> bool:
        """Tell whether the file holds other settings now; spelling and order do not count."""
        now = self._read()
        return bool(now) and now != self.hash

    def check(self) -> None:
        """End a replica that has not served, and may be waiting for what the new settings do not name any more.

        Raises: SettingsChanged.
        """
        if self.has_changed():
            raise SettingsChanged(f"{self.path} has other settings than those with which this replica was started")

    def _read(self) -> str:
        try:
            return settings_hash(read_json(read_small(self.path), object))
        except (OSError, msgspec.MsgspecError):
            return ""
