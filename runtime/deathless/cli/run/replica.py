"""`deathless replica`: one replica as the first process of a pod."""

from __future__ import annotations

import click

from deathless.base.errors import DeathlessError


@click.command()
@click.option(
    "--config",
    "path",
    default="/etc/deathless/replica.json",
    show_default=True,
    metavar="FILE",
    type=click.Path(),
    help="The settings that all replicas of the service share.",
)
def replica(path: str) -> int:
    """Run one replica of a service in a pod, as the operator's StatefulSet starts it.

    Which replica it is comes from the environment: POD_NAME, POD_UID, POD_IP, POD_NAMESPACE. SIGTERM stops it in order:
    a primary hands over first. The last error is written to the pod's termination message.
    """
    from deathless.shell.pod.entry import run
    from deathless.shell.process.output import never_wait

    never_wait()
    code = run(path)
    if isinstance(code, DeathlessError):
        raise code
    return code
