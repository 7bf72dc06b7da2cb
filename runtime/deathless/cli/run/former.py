"""`deathless former`: the code that wrote a log, served to replicas of another image that upgrade from it."""

from __future__ import annotations

import click

from deathless.cli.options import pod_settings


@click.command()
@click.option(
    "--listen",
    "socket_path",
    required=True,
    metavar="PATH",
    type=click.Path(),
    help="The Unix socket to listen at, in a folder that both containers have.",
)
@pod_settings("The settings that the replicas share which run this code.")
def former(socket_path: str, path: str) -> int:
    """Serve this image's code to replicas of another image, which upgrade from it.

    Runs in a container beside such a replica, as the operator starts it. For each connection a process of this code
    follows the log as it is told, until the upgrade is made. It reads checkpoints in the service's folder and writes
    nothing there; of the settings it uses the module, limits, shards and peers, and no secret. SIGTERM ends it.
    """
    from deathless.shell.pod.pod_config import hand_over, read_plain_config
    from deathless.shell.process.logs import configure
    from deathless.shell.process.output import never_wait
    from deathless.shell.upgrade.former_server import FormerServer

    never_wait()
    config = read_plain_config(path)
    configure(config.log_level, config.replica, "former")
    FormerServer(socket_path, hand_over(config)).run()
    return 0
