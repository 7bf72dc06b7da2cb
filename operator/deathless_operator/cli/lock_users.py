"""`deathless-operator lock-users`: a user for each service at the chart's lock store (docs/design/0011).

Why a process of its own: the operator has no way into the lock store, and needs none. The chart runs one pod with it.

Guarantees: whatever fails is looked at again; how it stands is a line on standard output whenever that changes. Does
not: decide (`plan.lock_users`), or do (`cluster.lock_users`).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import click

from deathless.base.backoff import next_pause
from deathless.base.errors import DeathlessError
from deathless_operator.cli.run import listed
from deathless_operator.cluster.api import Api
from deathless_operator.cluster.kubeconfig import connect
from deathless_operator.cluster.lock_store import LockStore
from deathless_operator.cluster.lock_users import LockUsers
from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings

REOPEN_S: Final = 3600.0
"""Then, and whenever something failed, certificate and users are looked at anew."""
PAUSE_MAX_S: Final = 60.0
"""Between looks that fail one after the other; each of them has every user mended again."""


@click.command("lock-users")
@click.option("--namespace", required=True, envvar="POD_NAMESPACE", help="The operator's namespace.")
@click.option("--endpoints", required=True, help="Members of the lock store, separated by commas.")
@click.option(
    "--tls",
    type=click.Path(path_type=Path),
    default=None,
    help="Folder with ca.crt, and tls.crt without a common name.",
)
@click.option(
    "--watch-namespaces", default="", help="Namespaces whose services have users, comma-separated; default: all."
)
@click.option("--withdraw", is_flag=True, help="Switch logins off and remove the services' users.")
@click.option(
    "--every", default=5.0, type=click.FloatRange(0), show_default=True, help="Seconds between checks; 0: check once."
)
@click.option("--kubeconfig", default=None, help="Kubeconfig; default: the pod's service account.")
def command(
    namespace: str,
    endpoints: str,
    tls: Path | None,
    watch_namespaces: str,
    withdraw: bool,
    every: float,
    kubeconfig: str | None,
) -> None:
    """Give each service a user of its own at the lock store, and require logins once all have one."""
    members = listed(endpoints)
    settings = OperatorSettings(namespace=namespace, lock_endpoints=members, lock_users=True)
    told = ""

    def tell(sentence: str) -> None:
        """Say how it stands, where that is not what was said last."""
        nonlocal told
        if sentence != told:
            click.echo(sentence)
        told = sentence

    async def look(looks: int) -> None:
        """Look so often over one connection."""
        async with Api(connect(kubeconfig)) as api, LockStore(members, tls=tls, user=names.LOCK_ADMIN) as store:
            users = LockUsers(api, store, settings, namespaces=listed(watch_namespaces))
            for _ in range(looks):
                tell(await users.look(withdraw=withdraw))
                await asyncio.sleep(every)

    async def watch() -> None:
        pause = every
        while True:
            try:
                await look(max(1, int(REOPEN_S / every)))
                pause = every
            except DeathlessError as error:
                tell(f"error: {error}")
                await asyncio.sleep(pause)
                pause = next_pause(pause, first_s=every, most_s=max(every, PAUSE_MAX_S))

    asyncio.run(watch() if every else look(1))
