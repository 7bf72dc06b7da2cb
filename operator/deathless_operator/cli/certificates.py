"""`deathless-operator certificates`: the lock store's authority and its certificates, made and renewed.

Why a command of its own: etcd needs them before anything else runs, and keeps needing them while the operator is
away or uninstalled. The chart runs it in a Job at the first installation and in a CronJob every week (0005,
"Installation", says why it is neither a hook nor Helm's own functions).

    authority    Secret with tls.crt, tls.key, ca.crt; never handed to a pod
    server       for the members, as servers and towards each other; its common name tells members from clients
    client       for replicas; no names, since etcd compares those of a client with the address it comes from
    user         likewise, for replicas that log in: while logins are on, etcd's gateway takes no common name

Guarantees: idempotent; a Secret is created or replaced only as read, so two runs at once cannot leave a certificate
of an authority that is not stored: the second one fails and is run again. An authority without our label is a user's
own and is never changed. Does not: restart etcd (it reads its certificate at each handshake, its authority at start).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import click

from deathless.base.errors import InvalidConfig
from deathless_operator.cluster import authority as certificates
from deathless_operator.cluster.api import Api, Object
from deathless_operator.cluster.kinds import SECRET, Kind
from deathless_operator.cluster.kubeconfig import connect
from deathless_operator.cluster.trust import decoded, encoded, is_managed
from deathless_operator.model import names

AUTHORITY_LIFE_S = 3650 * 86400.0
DAY_S = 86400.0
USER_URI = "urn:deathless:lock-store-client"  # issuers want a name; etcd compares no URI
LABELS = {
    names.LABEL_NAME: "deathless-lock-store",
    names.LABEL_MANAGED_BY: names.FIELD_MANAGER,
}


class SecretApi(Protocol):
    """The part of `Api` that is needed here."""

    async def find(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """See `Api.find`."""
        ...

    async def create(self, manifest: Object) -> Object:
        """See `Api.create`."""
        ...

    async def replace(self, manifest: Object) -> Object:
        """See `Api.replace`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One certificate that has to be there."""

    secret: str
    common_name: str  # empty: none
    dns_names: tuple[str, ...]
    uris: tuple[str, ...] = ()
    purpose: Literal["replicas", "clients"]  # server and client use, or client use alone
    life_s: float


async def ensure(api: SecretApi, *, namespace: str, ca_secret: str, wanted: Sequence[Wanted], now: float) -> list[str]:
    """Make or renew what is due.

    Args:
        api: the API server.
        namespace: of all Secrets.
        ca_secret: name of the authority's Secret.
        wanted: the certificates.
        now: wall seconds.

    Returns:
        A sentence for each thing done; empty when all was well.

    Raises:
        Conflict: another run was first; run again.
        InvalidConfig: an authority is stored and cannot be read.
    """
    done: list[str] = []
    there = [(each, await api.find(SECRET, namespace, each.secret)) for each in wanted]
    former = [decoded(found) for _, found in there if found is not None]
    authority = await _authority(api, namespace, ca_secret, now, former, done)
    for each, found in there:
        why = _why_due(found, each, authority, now)
        if not why:
            await _trust(api, namespace, each.secret, found, authority, done)
            continue
        certificate, key = certificates.issue(
            authority,
            common_name=each.common_name,
            dns_names=each.dns_names,
            uris=each.uris,
            purpose=each.purpose,
            now=now,
            life_s=each.life_s,
        )
        data = {"ca.crt": authority.bundle, "tls.crt": certificate, "tls.key": key}
        await _store(api, namespace, each.secret, "kubernetes.io/tls", data, found)
        done.append(f"Secret {each.secret}: {why}.")
    return done


async def _trust(
    api: SecretApi,
    namespace: str,
    secret: str,
    found: Object | None,
    authority: certificates.Authority,
    done: list[str],
) -> None:
    """Have a certificate's Secret name every authority that is trusted now; certificate and key stay."""
    data = decoded(found) if found is not None else {}
    facts = certificates.read_facts(data)
    if facts is None or set(facts.trusts) == set(authority.trusts):
        return
    await _store(api, namespace, secret, "kubernetes.io/tls", data | {"ca.crt": authority.bundle}, found)
    done.append(f"Secret {secret}: given the authorities that are trusted now.")


async def _authority(
    api: SecretApi,
    namespace: str,
    secret: str,
    now: float,
    former: Sequence[dict[str, bytes]],
    done: list[str],
) -> certificates.Authority:
    """Make or change the authority where it is due; one that is gone stays trusted while what it signed is in use."""
    found = await api.find(SECRET, namespace, secret)
    stored = certificates.from_data(decoded(found)) if found is not None else None
    if found is not None and stored is None:
        # A new authority in its place would lock every client out that holds a certificate of the old one.
        raise InvalidConfig(
            f"Secret {namespace}/{secret} holds no readable tls.crt and tls.key",
            remedy="repair it, or delete it to get a new authority, and restart the lock store within a day",
        )
    if found is not None and stored is not None and not is_managed(found):
        return stored
    signers, until = certificates.signers_of(former)
    wanted, sentence = certificates.maintained(stored, now, AUTHORITY_LIFE_S, former=signers, former_until=until)
    if sentence is not None:
        await _store(api, namespace, secret, "Opaque", certificates.to_data(wanted), found)
        done.append(f"Secret {secret}: {sentence}")
    return wanted


def _why_due(found: Object | None, wanted: Wanted, authority: certificates.Authority, now: float) -> str:
    """Say why a certificate has to be made, empty when it need not."""
    if found is None:
        return "made"
    data = decoded(found)
    facts = certificates.read_facts(data)
    if facts is None:
        return "made again, it could not be read"
    # Until everybody trusts a new authority, it replaces nothing that is good for longer than that.
    waits = facts.signed_by in authority.trusts and now < authority.signs_from < facts.not_after
    if certificates.is_due(data["tls.crt"], now) and not waits:
        return "renewed, two thirds of its life are over"
    if facts.signed_by != authority.current.key_id and not waits:
        return "signed by the present authority"
    if set(facts.dns_names) != set(wanted.dns_names):
        return "made again for other names"
    return ""


async def _store(
    api: SecretApi, namespace: str, name: str, kind: str, data: dict[str, bytes], found: Object | None
) -> None:
    manifest: Object = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": kind,
        "metadata": {"namespace": namespace, "name": name, "labels": LABELS},
        "data": encoded(data),
    }
    if found is None:
        await api.create(manifest)
        return
    manifest["metadata"] = {
        "namespace": namespace,
        "name": name,
        "labels": (found["metadata"].get("labels") or {}) | LABELS,
        "annotations": found["metadata"].get("annotations") or {},
        "resourceVersion": found["metadata"]["resourceVersion"],
    }
    manifest["type"] = found.get("type") or kind
    await api.replace(manifest)


@click.command("certificates")
@click.option("--namespace", required=True, envvar="POD_NAMESPACE", help="Namespace of the Secrets.")
@click.option("--ca-secret", default="deathless-lock-store-ca", show_default=True, help="The authority's Secret.")
@click.option("--server-secret", default="deathless-lock-store-tls", show_default=True, help="The members' Secret.")
@click.option("--server-name", default="deathless-lock-store", show_default=True, help="The members' common name.")
@click.option("--dns-names", required=True, help="DNS names of the members, separated by commas.")
@click.option(
    "--client-secret", default="deathless-lock-store-client-tls", show_default=True, help="The clients' Secret."
)
@click.option("--client-name", default="deathless-replica", show_default=True, help="The clients' common name.")
@click.option("--user-secret", default="", help="The Secret of clients that log in; none is created if empty.")
@click.option(
    "--life-days",
    type=click.IntRange(2, 3650),
    default=90,
    show_default=True,
    help="Validity of each certificate, in days.",
)
@click.option("--kubeconfig", default=None, help="Kubeconfig; default: the pod's service account.")
def command(  # noqa: PLR0913, PLR0917 - one parameter per option, click passes them by name
    namespace: str,
    ca_secret: str,
    server_secret: str,
    server_name: str,
    dns_names: str,
    client_secret: str,
    client_name: str,
    user_secret: str,
    life_days: int,
    kubeconfig: str | None,
) -> None:
    """Create or renew the lock store's certificates."""
    served = ("localhost", *filter(None, (name.strip() for name in dns_names.split(","))))
    life_s = life_days * DAY_S
    wanted = [
        Wanted(secret=server_secret, common_name=server_name, dns_names=served, purpose="replicas", life_s=life_s),
        Wanted(secret=client_secret, common_name=client_name, dns_names=(), purpose="clients", life_s=life_s),
    ]
    if user_secret:
        wanted.append(
            Wanted(secret=user_secret, common_name="", dns_names=(), uris=(USER_URI,), purpose="clients", life_s=life_s)
        )

    async def run(api: SecretApi) -> list[str]:
        return await ensure(api, namespace=namespace, ca_secret=ca_secret, wanted=wanted, now=time.time())

    done = asyncio.run(_with_api(kubeconfig, run))
    for sentence in done or ["Nothing is due."]:
        click.echo(sentence)


async def _with_api(kubeconfig: str | None, run: Callable[[Api], Awaitable[list[str]]]) -> list[str]:
    async with Api(connect(kubeconfig)) as api:
        return await run(api)
