"""The client's face gives the clients, under the names that the package gives too."""

import deathless
from deathless.sdk import client
from deathless.shell.client.shard_client import Client
from deathless.shell.client.sync_client import SyncClient


def test_client_names_are_the_clients() -> None:
    assert deathless.Client is client.Client is Client
    assert deathless.SyncClient is client.SyncClient is SyncClient
