"""The installation's authority in its Secret, and what is made from it: certificates, copies of Secrets; tokens.

    Secret is due for a change          changed as `authority.maintained` says
    Secret is gone, or can't be read    a new authority; those that ConfigMap `deathless-ca` names stay trusted for long
    Secret with annotation distrust     a new authority; nothing of the former one is trusted from now on

The ConfigMap holds certificates alone. They are in every service's Secrets as well, but tenants may write those, and
must not name an authority that all services trust.

Guarantees: the Secret is created or replaced only as read (by version), so two operators that both believe to lead
cannot leave services with certificates of an authority that is not stored. A Secret without our label is a user's
own authority: it is used as it is and never changed. Does not: decide what is due (the plan does), nor keep keys of
services: those are in their Secrets alone.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import secrets
from collections.abc import Mapping
from typing import Final

from deathless.base.errors import InvalidConfig
from deathless_operator.cluster import authority as certificates
from deathless_operator.cluster.api import Api, Object
from deathless_operator.cluster.errors import ApiRefused, Conflict, NotFound
from deathless_operator.cluster.kinds import CONFIG_MAP, SECRET
from deathless_operator.model import names
from deathless_operator.plan.actions import CopySecret, IssueCertificate, MakeToken, TrustAuthorities
from deathless_operator.plan.snapshot import AuthorityFacts, CertificateFacts, SecretFacts

TOKEN_BYTES: Final = 32  # of entropy in a token that is made
LABELS: Final = {names.LABEL_NAME: "deathless", names.LABEL_MANAGED_BY: names.FIELD_MANAGER}

logger = logging.getLogger(__name__)


class Trust:
    """The authority of one installation.

    Args:
        api: the API server.
        namespace: the operator's own.
        life_s: of an authority that is made, seconds.
        certificate_life_s: of what it signs, seconds.
    """

    def __init__(self, api: Api, *, namespace: str, life_s: float, certificate_life_s: float) -> None:
        self._api = api
        self._namespace = namespace
        self._life_s = life_s
        self._certificate_life_s = certificate_life_s
        self._authority: certificates.Authority | None = None
        self._noted_refused = False

    async def maintain(self, now: float) -> str | None:
        """Read the authority, make or change it where it is due, and store it; returns what was done, or None.

        Raises:
            Conflict: another process was first; call again.
            InvalidConfig: a user's own Secret cannot be read.
        """
        found = await self._api.find(SECRET, self._namespace, names.AUTHORITY_SECRET)
        stored = certificates.from_data(decoded(found)) if found is not None else None
        if found is not None and not is_managed(found):
            if stored is None:
                raise InvalidConfig(
                    f"Secret {self._namespace}/{names.AUTHORITY_SECRET} holds no readable ca.crt, tls.crt and tls.key",
                    remedy="repair it, or delete it to get a new authority",
                )
            wanted, sentence = stored, None
        elif found is not None and is_distrusted(found):
            wanted, sentence = certificates.maintained(None, now, self._life_s)
            sentence = f"{sentence} The previous one is no longer trusted, as its annotation requests."
        elif stored is None:
            former, until = await self._noted(), now + self._certificate_life_s
            wanted, sentence = certificates.maintained(None, now, self._life_s, former=former, former_until=until)
        else:
            wanted, sentence = certificates.maintained(stored, now, self._life_s)
        # A new authority is noted once it is stored: else each one that could not be stored would stay trusted. One
        # that replaces a distrusted one is noted first: that one must not be found there once its Secret is gone.
        if found is not None and is_distrusted(found):
            await self._note(wanted)
        if sentence is not None:
            await self._store(found, wanted)
        await self._note(wanted)
        self._authority = wanted
        return sentence

    async def _noted(self) -> tuple[bytes, ...]:
        """Return the authorities that were trusted when this was noted last."""
        try:
            found = await self._api.find(CONFIG_MAP, self._namespace, names.AUTHORITY_CONFIG_MAP)
        except ApiRefused as error:
            logger.warning("former authorities can't be read and are no longer trusted: %s", error)
            return ()
        return certificates.certificates_in(_bundle(found).encode())

    async def _note(self, wanted: certificates.Authority) -> None:
        """Note which authorities are trusted; a refusal is told, and keeps nobody from having certificates."""
        bundle = wanted.bundle.decode()
        try:
            if _bundle(await self._api.find(CONFIG_MAP, self._namespace, names.AUTHORITY_CONFIG_MAP)) != bundle:
                meta: Object = {"namespace": self._namespace, "name": names.AUTHORITY_CONFIG_MAP, "labels": LABELS}
                manifest: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
                await self._api.apply(manifest | {"data": {"ca.crt": bundle}}, force=True)
        except ApiRefused as error:
            if not self._noted_refused:
                logger.warning(
                    "the trusted authorities can't be recorded; if the Secret is lost too, none is trusted: %s", error
                )
            self._noted_refused = True
            return
        self._noted_refused = False

    async def _store(self, found: Object | None, wanted: certificates.Authority) -> None:
        manifest: Object = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": {
                "namespace": self._namespace,
                "name": names.AUTHORITY_SECRET,
                "labels": LABELS,
            },
            "data": encoded(certificates.to_data(wanted)),
        }
        if found is None:
            await self._api.create(manifest)
            return
        manifest["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
        manifest["type"] = found.get("type") or "Opaque"
        await self._api.replace(manifest)

    def facts(self) -> AuthorityFacts:
        """Return what plans may know of the authority."""
        if self._authority is None:
            return AuthorityFacts()
        return AuthorityFacts(
            ready=True,
            signs=self._authority.current.key_id,
            trusts=tuple(sorted(self._authority.trusts)),
            signs_from=self._authority.signs_from,
        )

    async def issue(self, action: IssueCertificate, now: float) -> None:
        """Sign a new key and apply it as the action's Secret, with every authority that is trusted."""
        assert self._authority is not None, "no plan issues certificates before there is an authority"
        certificate, key = certificates.issue(
            self._authority,
            common_name=action.common_name,
            dns_names=action.dns_names,
            uris=action.uris,
            purpose=action.purpose,
            now=now,
            life_s=action.life_s,
        )
        data = {"ca.crt": self._authority.bundle, "tls.crt": certificate, "tls.key": key}
        manifest: Object = {"type": "kubernetes.io/tls", **action.manifest, "data": encoded(data)}
        await self._api.apply(manifest, force=True)

    async def trust(self, namespace: str, action: TrustAuthorities) -> None:
        """Write every authority that is trusted into the action's Secret; it is done where the Secret is gone."""
        assert self._authority is not None, "no plan changes certificates before there is an authority"
        meta: Object = {"uid": action.uid}
        body: Object = {"metadata": meta, "data": encoded({"ca.crt": self._authority.bundle})}
        try:
            await self._api.patch(SECRET, namespace, action.secret, body)
        except NotFound:
            return

    async def copy(self, action: CopySecret) -> None:
        """Apply the action's Secret with the data of the one it names in our namespace.

        Raises:
            NotFound: there is no such Secret any more, or the user is no more in it.
        """
        source: Object | None = await self._api.get(SECRET, self._namespace, action.source)
        if action.user:
            source = login_of(source, action.user)
        if source is None:
            raise NotFound(f"Secret {action.source} has no user {action.user}", status=404)
        manifest: Object = {"type": "Opaque", **action.manifest, "data": source.get("data") or {}}
        await self._api.apply(manifest, force=True)

    async def make_token(self, action: MakeToken) -> None:
        """Create the action's Secret with a new token; what is there under its name is never replaced."""
        data = {names.OPERATOR_TOKEN_KEY: secrets.token_urlsafe(TOKEN_BYTES).encode()}
        manifest: Object = {"type": "Opaque", **action.manifest, "data": encoded(data)}
        try:
            await self._api.create(manifest)
        except Conflict as error:
            if error.reason != "AlreadyExists":
                raise


def certificate_facts(secret: Object) -> CertificateFacts:
    """Return what a Secret's certificate says."""
    meta = secret["metadata"]
    name, uid, managed = str(meta["name"]), str(meta.get("uid") or ""), is_managed(secret)
    facts = certificates.read_facts(decoded(secret))
    if facts is None:
        return CertificateFacts(secret=name, uid=uid, readable=False, managed=managed)
    return CertificateFacts(
        secret=name,
        uid=uid,
        not_before=facts.not_before,
        not_after=facts.not_after,
        dns_names=facts.dns_names,
        uris=facts.uris,
        signed_by=facts.signed_by,
        trusts=tuple(sorted(facts.trusts)),
        managed=managed,
    )


def secret_facts(secret: Object) -> SecretFacts:
    """Return what plans may know of a Secret: its keys and a digest, no values."""
    meta, data = secret["metadata"], secret.get("data") or {}
    digest = hashlib.sha256()
    for key in sorted(data):
        digest.update(f"{len(key)}:{key}{len(str(data[key]))}:{data[key]}".encode())
    return SecretFacts(
        name=str(meta["name"]),
        uid=str(meta.get("uid") or ""),
        keys=tuple(sorted(data)),
        digest=digest.hexdigest()[:16],
        source=str((meta.get("annotations") or {}).get(names.SOURCE_ANNOTATION) or ""),
        managed=is_managed(secret),
        hidden=names.HIDDEN_ANNOTATION in (meta.get("annotations") or {}),
    )


def login_of(table: Object | None, user: str) -> Object | None:
    """Return what one service gets of the table of the lock store's users, as a Secret; None: it is not granted yet."""
    password = ((table or {}).get("data") or {}).get(user)
    if table is None or password is None:
        return None
    data = encoded({"username": user.encode()}) | {"password": str(password)}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": table["metadata"]["name"]}, "data": data}


def is_withdrawn(table: Object) -> bool:
    """Tell whether users of the lock store are to be mounted no more."""
    return names.WITHDRAWN_ANNOTATION in (table["metadata"].get("annotations") or {})


def is_managed(found: Object) -> bool:
    """Tell whether our label stands on an object."""
    labels = (found.get("metadata") or {}).get("labels") or {}
    return bool(labels.get(names.LABEL_MANAGED_BY) == names.FIELD_MANAGER)


def is_distrusted(found: Object) -> bool:
    """Tell whether somebody asked for another authority at once."""
    annotations = (found.get("metadata") or {}).get("annotations") or {}
    return bool(annotations.get(names.DISTRUST_ANNOTATION) == "true")


def _bundle(found: Object | None) -> str:
    return str(((found or {}).get("data") or {}).get("ca.crt") or "")


def decoded(secret: Object) -> dict[str, bytes]:
    """Return a Secret's data as bytes; values that are no base64 are left out."""
    data = {}
    for key, value in (secret.get("data") or {}).items():
        try:
            data[str(key)] = base64.b64decode(str(value), validate=True)
        except ValueError:
            continue
    return data


def encoded(data: Mapping[str, bytes]) -> dict[str, str]:
    """Return data as a Secret holds it."""
    return {key: base64.b64encode(value).decode() for key, value in data.items()}
