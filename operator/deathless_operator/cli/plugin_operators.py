"""`kubectl deathless invocations`, `order`, `parked`, `undelivered`, `peers` and so on: the HTTP pages for operators.

Why apart from `plugin_cluster`: these pages show other callers' data and take orders that end other callers' calls, so
they are opened by another token, the Secret `NAME-operator-token` that the operator made. Who may read that Secret is
an operator of the service; nobody else is.

Guarantees: an order goes out once, and one without an answer is told as unknown. The token is shown to the service
alone, and printed nowhere. Does not: know more than the pages do.
"""

from __future__ import annotations

import base64
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Final, cast
from urllib.parse import quote, urlencode

import aiohttp
import click
import msgspec

from deathless.base.errors import InvalidArgument, OperatorsOnly, OutcomeUnknown
from deathless.codec.untrusted import read_json
from deathless_operator.cli import plugin_view as view
from deathless_operator.cli.plugin_cluster import Cluster, forwarded, read_answer
from deathless_operator.cli.plugin_options import (
    Command,
    InvocationId,
    answer_option,
    common,
    on_cluster,
    service_argument,
    shard_option,
)
from deathless_operator.cluster.bounded import read_whole
from deathless_operator.cluster.errors import NotFound
from deathless_operator.cluster.kinds import SECRET
from deathless_operator.model import names
from deathless_operator.model.values import Json, number, objects, text
from deathless_operator.plan.snapshot import ResourceView

AGAIN: Final = "look before you repeat it: a second order may meet what the first one set going"


async def operator_token(cluster: Cluster, resource: ResourceView) -> str:
    """Read the token of a service's operators.

    Raises: OperatorsOnly where there is none; Forbidden where the Secret may not be read.
    """
    name = names.operator_token_secret(resource.name)
    try:
        raw = await cluster.api.get(SECRET, cluster.namespace, name)
    except NotFound:
        raise OperatorsOnly(
            f"Secret {name} is not there", remedy="the operator creates it; if yours is too old to do so, upgrade it"
        ) from None
    return base64.b64decode((raw.get("data") or {}).get(names.OPERATOR_TOKEN_KEY, "")).decode().strip()


class Pages:
    """Pages below `/SERVICE/-/`, through the front door.

    Args:
        session: shows the token of operators.
        service: whose.
        shards: how many it has.
        root: the address of the pages, without a slash at its end.
        secure: who is let pass for the service.
        host: the name that its certificate has to have; None: it shows none.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        service: str,
        shards: int,
        root: str,
        secure: ssl.SSLContext | bool,
        host: str | None,
    ) -> None:
        self._session = session
        self._service = service
        self.shards = shards
        self._root = root
        self._secure = secure
        self._host = host

    async def ask(self, page: str, order: dict[str, object] | None = None) -> object:
        """Ask for a page, or give an order there.

        Args:
            page: the rest of the address.
            order: body of an order; None: nothing is ordered.

        Raises: OutcomeUnknown, TooLarge, and what the service tells.
        """
        data = None if order is None else msgspec.json.encode(order)
        method, url = "GET" if order is None else "POST", f"{self._root}/{page}"
        try:
            async with self._session.request(
                method, url, data=data, ssl=self._secure, server_hostname=self._host
            ) as answer:
                whole = await read_whole(answer, f"{self._service} {page}")
                return read_answer(answer.status, whole, again=AGAIN)
        except (aiohttp.ClientError, TimeoutError) as error:
            told = f"{type(error).__name__}: {error}".rstrip(": ")
            raise OutcomeUnknown(told, remedy=AGAIN) from None


@contextlib.asynccontextmanager
async def opened(cluster: Cluster, service: str, timeout_s: float) -> AsyncIterator[Pages]:
    """Open the pages of a service for its operators, each answer of which is waited for so long.

    Raises: UnknownService, OperatorsOnly, PeerUnreachable.
    """
    resource = await cluster.service(service)
    context, token = await cluster.context(resource), await operator_token(cluster, resource)
    secure: ssl.SSLContext | bool = context if context is not None else True
    host = names.server_name(cluster.namespace, service) if context is not None else None
    async with forwarded(cluster.namespace, service, timeout_s) as port:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        async with aiohttp.ClientSession(timeout=timeout, headers=headers, trust_env=False) as session:
            root = f"{'https' if context is not None else 'http'}://127.0.0.1:{port}/{service}/-"
            shards = resource.spec.shards if resource.spec is not None else 1
            yield Pages(session, service, shards, root, secure, host)


async def given_up(pages: Pages, driver: str, shard: int | None) -> list[str]:
    """Give the ids of all messages that drivers gave up.

    Args:
        pages: of the service.
        driver: by this one alone; empty: by any.
        shard: of this one alone; None: of all.
    """
    found: list[str] = []
    for each in range(pages.shards) if shard is None else [shard]:
        several, first = pages.shards > 1, 0
        while True:
            page = about("undelivered", **{"from": first or None}, shard=each if several else None)
            listed = objects(cast("Json", await pages.ask(page)), "undelivered")
            if not listed or number(listed[-1], "id") < first:
                break
            first = number(listed[-1], "id") + 1
            ids = [number(one, "id") for one in listed if driver in ("", text(one, "driver"))]
            found += [f"{each}-{one}" if several else str(one) for one in ids]
    return found


ORDERS = ("cancel", "kill", "resume")
ignored_json_option = click.option("--json", is_flag=True, expose_value=False, help="Print JSON (the default).")
number_type = click.IntRange(min=1)


def _operate(
    service: str, page: str, namespace: str, kubeconfig: str, timeout: float, order: dict[str, object] | None = None
) -> int:
    """Ask for a page, or give an order there, and print the answer; it is JSON with and without --json."""

    async def work(cluster: Cluster) -> object:
        async with opened(cluster, service, timeout) as pages:
            return await pages.ask(page, order)

    view.emit(on_cluster(namespace, kubeconfig, work))
    return 0


def about(page: str, **named: int | None) -> str:
    """Give a page with what stands behind its path; None: nothing."""
    said = {name: value for name, value in named.items() if value is not None}
    return f"{page}?{urlencode(said)}" if said else page


@click.command()
@service_argument
@click.argument("number", metavar="[ID]", default=None, type=InvocationId())
@click.option("--from", "first", default=0, type=click.IntRange(min=0), metavar="ID", help="Start at this ID.")
@shard_option
@common
@ignored_json_option
@answer_option
def invocations(
    service: str,
    number: str | None,
    first: int,
    shard: int | None,
    namespace: str,
    kubeconfig: str,
    timeout: float,
) -> int:
    """Print the handlers that wait in all shards, the oldest first, or the details of ID, as JSON."""
    if number is not None:
        page = about(f"invocations/{number}/history", shard=shard)
    else:
        page = about("invocations", **{"from": first or None}, shard=shard)
    return _operate(service, page, namespace, kubeconfig, timeout)


@click.command()
@service_argument
@click.argument("number", metavar="ID", type=InvocationId())
@click.argument("order", type=click.Choice(ORDERS))
@click.option(
    "--operation",
    default=None,
    type=number_type,
    help="For `resume`: the operation to complete; default: the only one.",
)
@click.option("--value", default=None, metavar="JSON", help="For `resume`: the value it gets; default: null.")
@common
@ignored_json_option
@answer_option
def order(
    service: str,
    number: str,
    order: str,
    operation: int | None,
    value: str | None,
    namespace: str,
    kubeconfig: str,
    timeout: float,
) -> int:
    """Cancel or kill the invocation ID of a service, or resume it.

    \b
    kubectl deathless order bank 512 cancel
    kubectl deathless order bank 512 resume --value true
    kubectl deathless order bank 1-512 cancel
    """  # noqa: D301 - click's mark for a paragraph that keeps its lines
    body: dict[str, object] = {}
    if order != "resume" and (operation is not None or value is not None):
        raise InvalidArgument(f"--operation and --value belong to resume, not to {order}", remedy="omit them")
    if operation is not None:
        body["operation"] = operation
    if value is not None:
        try:
            body["value"] = read_json(value.encode(), object)
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise InvalidArgument(
                f"--value {value!r} is not JSON: {error}", remedy="""write a string as '"text"'"""
            ) from None
    return _operate(service, f"invocations/{number}/{order}", namespace, kubeconfig, timeout, body)


@click.command()
@service_argument
@shard_option
@common
@ignored_json_option
@answer_option
def parked(service: str, shard: int | None, namespace: str, kubeconfig: str, timeout: float) -> int:
    """Print the parked messages, as JSON."""
    return _operate(service, about("parked", shard=shard), namespace, kubeconfig, timeout)


@click.command("retry-parked")
@service_argument
@click.argument("lsn", type=InvocationId())
@common
@ignored_json_option
@answer_option
def retry_parked(service: str, lsn: str, namespace: str, kubeconfig: str, timeout: float) -> int:
    """Run the parked message LSN (for shard 1: 1-LSN) once more."""
    return _operate(service, f"parked/{lsn}/retry", namespace, kubeconfig, timeout, {})


@click.command()
@service_argument
@shard_option
@common
@ignored_json_option
@answer_option
def peers(service: str, shard: int | None, namespace: str, kubeconfig: str, timeout: float) -> int:
    """Print the services that this one exchanges messages with, as JSON."""
    return _operate(service, about("peers", shard=shard), namespace, kubeconfig, timeout)


@click.command("adopt-peer")
@service_argument
@click.argument("peer")
@click.option("--service-id", required=True, metavar="HEX", help="Service ID of the new service, as `peers` shows it.")
@click.option(
    "--incarnation",
    required=True,
    type=number_type,
    metavar="N",
    help="Incarnation of the new service, as `peers` shows it.",
)
@click.option("--peer-shard", default=0, type=click.IntRange(min=0), metavar="K", help="Which shard of the peer.")
@shard_option
@common
@ignored_json_option
@answer_option
def adopt_peer(
    service: str,
    peer: str,
    service_id: str,
    incarnation: int,
    peer_shard: int,
    shard: int | None,
    namespace: str,
    kubeconfig: str,
    timeout: float,
) -> int:
    """Accept the PEER that was created anew as the peer from now on.

    Messages to the old peer that it had not confirmed are dropped; handlers that wait for it get PeerReplaced.
    """
    body: dict[str, object] = {"serviceId": service_id, "incarnation": incarnation, "shard": peer_shard}
    page = about(f"peers/{quote(peer, safe='')}/adopt", shard=shard)
    return _operate(service, page, namespace, kubeconfig, timeout, body)


@click.command()
@service_argument
@shard_option
@common
@ignored_json_option
@answer_option
def unknown(service: str, shard: int | None, namespace: str, kubeconfig: str, timeout: float) -> int:
    """Print the activities whose outcome is unknown, as JSON."""
    return _operate(service, about("unknown", shard=shard), namespace, kubeconfig, timeout)


@click.command()
@service_argument
@click.argument("number", metavar="ID", type=InvocationId())
@click.argument("operation", type=number_type)
@common
@ignored_json_option
@answer_option
def settle(service: str, number: str, operation: int, namespace: str, kubeconfig: str, timeout: float) -> int:
    """Settle the activity OPERATION of the invocation ID, whose outcome was unknown."""
    return _operate(service, f"unknown/{number}/{operation}/settle", namespace, kubeconfig, timeout, {})


@click.command()
@service_argument
@click.option("--from", "first", default=0, type=click.IntRange(min=0), metavar="ID", help="Start at this ID.")
@shard_option
@common
@ignored_json_option
@answer_option
def undelivered(service: str, first: int, shard: int | None, namespace: str, kubeconfig: str, timeout: float) -> int:
    """Print the messages that drivers gave up, the oldest first, as JSON."""
    page = about("undelivered", **{"from": first or None}, shard=shard)
    return _operate(service, page, namespace, kubeconfig, timeout)


def given_up_options(function: Command) -> Command:
    """Which of the messages that drivers gave up: `numbers`, or `everything` that `driver` gave up."""
    for option in (
        shard_option,
        click.option("--driver", default="", metavar="NAME", help="With --all: only messages of this driver."),
        click.option("--all", "everything", is_flag=True, help="All messages that are listed now."),
        click.argument("numbers", metavar="ID...", type=InvocationId(), nargs=-1),
    ):
        function = option(function)
    return function


@click.command("retry-undelivered")
@service_argument
@given_up_options
@common
@ignored_json_option
@answer_option
def retry_undelivered(
    service: str,
    numbers: tuple[str, ...],
    everything: bool,
    driver: str,
    shard: int | None,
    namespace: str,
    kubeconfig: str,
    timeout: float,
) -> int:
    """Send the messages ID (for shard 1: 1-ID) that drivers gave up again, after those already queued.

    Their receiver gets the same Idempotency-Key as with the first attempt.

    \b
    kubectl deathless retry-undelivered bank 4711
    kubectl deathless retry-undelivered bank --all --driver mail
    """  # noqa: D301 - click's mark for a paragraph that keeps its lines
    return _see_to("retry", service, numbers, everything, driver, shard, namespace, kubeconfig, timeout)


@click.command("discard-undelivered")
@service_argument
@given_up_options
@common
@ignored_json_option
@answer_option
def discard_undelivered(
    service: str,
    numbers: tuple[str, ...],
    everything: bool,
    driver: str,
    shard: int | None,
    namespace: str,
    kubeconfig: str,
    timeout: float,
) -> int:
    """Drop the messages ID (for shard 1: 1-ID) that drivers gave up permanently, without delivering them."""
    return _see_to("discard", service, numbers, everything, driver, shard, namespace, kubeconfig, timeout)


def _see_to(
    what: str,
    service: str,
    numbers: tuple[str, ...],
    everything: bool,
    driver: str,
    shard: int | None,
    namespace: str,
    kubeconfig: str,
    timeout: float,
) -> int:
    """Send messages that drivers gave up again, or discard them, one after the other; print which."""
    if bool(numbers) == everything:
        raise click.UsageError("give ids, or --all")
    if not everything and (driver or shard is not None):
        raise click.UsageError("--driver and --shard go with --all; an id names its shard, like 1-4711")

    async def work(cluster: Cluster) -> list[str]:
        async with opened(cluster, service, timeout) as pages:
            chosen = await given_up(pages, driver, shard) if everything else list(numbers)
            for each in chosen:
                await pages.ask(f"undelivered/{each}/{what}", {})
            return chosen

    done = "sent again" if what == "retry" else "discarded"
    view.emit({"messages": on_cluster(namespace, kubeconfig, work), "done": done})
    return 0


@click.command("resume-outside")
@service_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@shard_option
@common
@ignored_json_option
@answer_option
def resume_outside(service: str, yes: bool, shard: int | None, namespace: str, kubeconfig: str, timeout: float) -> int:
    """Release the messages and activities that a service holds back since it was adopted.

    `adopt --restored` and `adopt --as-new` hold them back, since they may already have been sent. First look at what
    waits, with `peers` and `invocations`.
    """
    if not (yes or view.confirmed(f"What waits in {service} leaves for good. Go on?")):
        raise InvalidArgument("nothing was let go", remedy="add --yes")
    return _operate(service, about("outside/resume", shard=shard), namespace, kubeconfig, timeout, {})


COMMANDS: Final = (
    invocations,
    order,
    parked,
    retry_parked,
    unknown,
    settle,
    undelivered,
    retry_undelivered,
    discard_undelivered,
    peers,
    adopt_peer,
    resume_outside,
)
