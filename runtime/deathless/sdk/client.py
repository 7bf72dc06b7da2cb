"""The Python client's face: `from deathless import Client, SyncClient` gives the same.

Apart from the author's names, because it brings sockets and an event loop with it, which a service's module needs
not. Guarantees: these names stay. Does not: hold code of its own.
"""

from deathless.shell.client.shard_client import Client
from deathless.shell.client.sync_client import SyncClient

__all__ = ["Client", "SyncClient"]
