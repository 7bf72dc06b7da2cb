"""What every command of the plugin shares: its options, and the way to the API server.

Guarantees: a completion that gets no answer at once offers nothing. Does not: print, or know a command.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from deathless.base.errors import InvalidArgument
from deathless.base.shards import SHARDS_MAX, read_invocation
from deathless_operator.cli.plugin_cluster import SWITCH_S, Cluster
from deathless_operator.cluster.api import Api
from deathless_operator.cluster.kinds import PIPELINE
from deathless_operator.cluster.kubeconfig import connect

COMPLETION_TIMEOUT_S: Final = 2.0
CONTEXT: Final = f"{__name__}.context"  # where click keeps what --context says

Command = Callable[..., Any]


def on_cluster(
    namespace: str, kubeconfig: str, work: Callable[[Cluster], Awaitable[Any]], ctx: click.Context | None = None
) -> Any:
    """Do something with the API server that the kubeconfig and --context of the command name."""
    ctx = click.get_current_context(silent=True) if ctx is None else ctx
    connection = connect(kubeconfig or None, ctx.meta.get(CONTEXT, "") if ctx is not None else "")

    async def run() -> Any:
        async with Api(connection) as api:
            return await work(Cluster(api=api, namespace=namespace or connection.namespace))

    return asyncio.run(run())


def complete_service(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's signature
    """Offer the services of the namespace; nothing where the API server does not answer at once."""

    async def find(cluster: Cluster) -> list[str]:
        return [one.name for one in await cluster.services()]

    return _offered(ctx, incomplete, find)


def _offered(
    ctx: click.Context, incomplete: str, find: Callable[[Cluster], Awaitable[list[str]]]
) -> list[CompletionItem]:
    """Offer names that begin so; nothing where they are not found at once."""

    async def in_time(cluster: Cluster) -> list[str]:
        async with asyncio.timeout(COMPLETION_TIMEOUT_S):
            return await find(cluster)

    found: list[str] = []
    with contextlib.suppress(Exception):
        found = on_cluster(ctx.params.get("namespace") or "", ctx.params.get("kubeconfig") or "", in_time, ctx)
    return [CompletionItem(name) for name in found if name.startswith(incomplete)]


def complete_pipeline(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's signature
    """Offer the pipelines of the namespace; nothing where the API server does not answer at once."""

    async def find(cluster: Cluster) -> list[str]:
        return [str(raw["metadata"]["name"]) for raw in await cluster.api.list(PIPELINE, cluster.namespace)]

    return _offered(ctx, incomplete, find)


def complete_source(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's signature
    """Offer the sources of the service that was named before; nothing where the API server does not answer at once."""

    async def find(cluster: Cluster) -> list[str]:
        spec = (await cluster.service(ctx.params["service"])).spec
        return [each.name for each in spec.sources] if spec is not None else []

    return _offered(ctx, incomplete, find)


class InvocationId(click.ParamType[str]):
    """The id of an invocation: `512`, or `1-512` of shard 1; the service says which of them it takes."""

    name = "id"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """See click."""
        text = str(value)
        try:
            read_invocation(text, SHARDS_MAX if "-" in text else 1)
        except InvalidArgument:
            self.fail(f"{text!r} is not an ID; expected 512, or 1-512 for shard 1", param, ctx)
        return text


def keep_context(ctx: click.Context, _param: click.Parameter, value: str) -> None:
    """Keep the name for `on_cluster`: nothing between here and there has to hand it on."""
    ctx.meta[CONTEXT] = value


def common(function: Command) -> Command:
    """Options that each command has."""
    for option in (
        click.option(
            "--context",
            default="",
            metavar="NAME",
            expose_value=False,
            is_eager=True,
            callback=keep_context,
            help="Context of the kubeconfig; default: its current one.",
        ),
        click.option(
            "--kubeconfig", default="", metavar="FILE", help="Kubeconfig; default: KUBECONFIG or ~/.kube/config."
        ),
        click.option("-n", "--namespace", default="", metavar="NAME", help="Namespace; default: the context's."),
    ):
        function = option(function)
    return function


pipeline_argument = click.argument("pipeline", shell_complete=complete_pipeline)
source_argument = click.argument("source", shell_complete=complete_source)
service_argument = click.argument("service", shell_complete=complete_service)
shard_option = click.option(
    "--shard", type=click.IntRange(0, SHARDS_MAX - 1), metavar="K", help="Which shard, if the service has several."
)
answer_option = click.option(
    "--timeout",
    default=10.0,
    show_default=True,
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="How long to wait for an answer.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
timeout_option = click.option(
    "--timeout",
    default=60.0,
    show_default=True,
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="How long to wait.",
)
handover_timeout_option = click.option(
    "--timeout",
    default=None,
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help=f"How long to wait.  [default: {SWITCH_S:g} plus limits.handoverWaitS]",
)
