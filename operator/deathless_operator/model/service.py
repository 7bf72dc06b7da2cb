"""A DeathlessService as the API server has it, read into the spec that laptop and cluster share.

Guarantees: a resource that this version can't read gives problems with place and remedy, never an error: the operator
then says so and leaves everything as it is. Does not: know other objects. Imports base and model.
"""

from __future__ import annotations

import msgspec

from deathless.base.lock_stores import CLUSTER_STORE
from deathless.base.manifest import Manifest, Metadata, ServiceSpec, relation_problems
from deathless.base.manifest_ingress import Ingress
from deathless.base.manifest_parts import Peer, TlsSpec
from deathless.base.schema_check import Path, Problem, find_problems, show_path
from deathless.base.source_kinds.connector import connector_options, open_to_strangers
from deathless.base.source_kinds.settings import gate_ports, local_sources
from deathless_operator.model import names
from deathless_operator.model.grace import grace_problems
from deathless_operator.model.resource_parts import PROBLEMS_MAX, status_in
from deathless_operator.model.status import ServiceStatus
from deathless_operator.model.values import JsonObject, part

CERT_MANAGER = "cert-manager.io"
OWN_VARIABLES = ("DEATHLESS_", "POD_")
OWN_FOLDERS = ("/etc/deathless", "/var/lib/deathless")


def read_spec(raw: JsonObject) -> tuple[ServiceSpec | None, tuple[str, ...]]:
    """Give the spec of a resource, or what is wrong with it.

    Args:
        raw: the whole resource.
    """
    found: list[Problem] = []
    spec = None
    try:
        # To find every mistake takes a hundred times longer than to find that there is none.
        spec = msgspec.convert(part(raw, "spec"), ServiceSpec)
    except msgspec.ValidationError as error:
        found = find_problems(part(raw, "spec"), ServiceSpec) or [Problem(("spec",), None, str(error), "correct it")]
    if spec is not None:
        # What a laptop elects by its directory, a cluster elects through etcd. The name was the API server's to check.
        lock = msgspec.structs.replace(spec.lock, type=spec.lock.type or CLUSTER_STORE)
        whole = Manifest(
            api_version="deathless.dev/v1alpha1",
            kind="DeathlessService",
            metadata=Metadata(name="x"),
            spec=msgspec.structs.replace(spec, lock=lock),
        )
        found = relation_problems(whole) + cluster_problems(spec)
    if not found:
        return spec, ()
    shown = [f"{show_path(problem.path)}: {problem.what}; {problem.remedy}" for problem in _rooted(found)]
    more = [f"and {len(shown) - PROBLEMS_MAX} more"] if len(shown) > PROBLEMS_MAX else []
    return None, tuple(shown[:PROBLEMS_MAX] + more)


def _rooted(found: list[Problem]) -> list[Problem]:
    return [
        problem if problem.path[:1] == ("spec",) else problem._replace(path=("spec", *problem.path))
        for problem in found
    ]


def cluster_problems(spec: ServiceSpec) -> list[Problem]:
    """Find what a laptop takes and a cluster can't; rules of the CRD refuse the same."""
    storage, tls = spec.log_storage, spec.tls or TlsSpec()
    checks = (
        (not spec.image, ("spec", "image"), "is missing", "name the image that holds the module"),
        (
            spec.lock.type not in (None, CLUSTER_STORE),
            ("spec", "lock", "type"),
            f"is {spec.lock.type}",
            f"a cluster elects through {CLUSTER_STORE}",
        ),
        (spec.fence == "seal", ("spec", "fence"), "is seal", "leave it out: in a cluster the fence is etcd"),
        (
            bool(storage.claim_name) == bool(storage.size),
            ("spec", "logStorage"),
            "needs one of claimName and size",
            "name an existing ReadWriteMany claim, or give the size of a new one",
        ),
        (
            bool(storage.class_name) and not storage.size,
            ("spec", "logStorage", "className"),
            "needs size",
            "leave it out: an existing claim has its class",
        ),
        (
            (tls.issuer == "CertManager") != (tls.issuer_ref is not None),
            ("spec", "tls", "issuerRef"),
            "goes with tls.issuer CertManager, and only with it",
            "name the issuer, or leave it out",
        ),
        (
            tls.issuer_ref is not None
            and tls.issuer_ref.group == CERT_MANAGER
            and tls.issuer_ref.kind not in ("Issuer", "ClusterIssuer"),
            ("spec", "tls", "issuerRef", "kind"),
            "is no kind of cert-manager's own",
            "write Issuer or ClusterIssuer, or give the group of the kind",
        ),
    )
    found = [Problem(path, None, what, remedy) for wrong, path, what, remedy in checks if wrong]
    found += [
        Problem(("spec", "sources", at, "kind"), kind, f"can't be read in a cluster: {why}", "leave the source out")
        for at, kind, why in local_sources(spec.sources)
    ]
    found += _gate_problems(spec)
    found += _caller_problems(spec) + _lock_problems(spec) + _peer_problems(spec) + _pod_problems(spec)
    return found + grace_problems(spec)


def _gate_problems(spec: ServiceSpec) -> list[Problem]:
    """Find what is wrong with sources at which programs connect; a pod listens on every address."""
    tls = spec.tls or TlsSpec()
    certificates = tls.issuer != "Off" and tls.require_client_certificate is not False
    taken = dict.fromkeys((names.CLIENT_PORT, names.REPLICATION_PORT, names.CONTROL_PORT), "a port of every replica")
    taken |= dict.fromkeys((names.HTTP_PORT, names.HEALTH_PORT, names.SERVICE_HTTP_PORT), "a port of every replica")
    taken[names.SERVICE_HTTPS_PORT] = "a port of every replica"
    found: list[Problem] = []
    for at, source in enumerate(spec.sources):
        if source.name not in (ports := gate_ports(spec.sources)):
            continue  # no gate, or its options are refused already
        path, options = ("spec", "sources", at, "options"), connector_options(source.name, source.options)
        port = ports[source.name]
        if why := open_to_strangers(options, certificates=certificates, everywhere=True):
            found.append(Problem((*path, "cookieFile"), None, why, "name a cookieFile, whose Secret is secretRef"))
        if options.cookie_file and source.secret_ref is None:
            what = "is a key of the Secret that secretRef names, and there is none"
            found.append(Problem((*path, "cookieFile"), options.cookie_file, what, "name the Secret"))
        if options.tls and tls.issuer == "Off":
            what = "needs the certificates of spec.tls"
            found.append(Problem((*path, "tls"), True, what, "leave tls.issuer Off out"))
        if port == 0 or port in taken:
            what = f"names port {port}, which is {taken.get(port, 'none that could be reached')}"
            found.append(Problem((*path, "listen"), options.listen, what, "choose another port"))
        taken[port] = f"that of source {source.name}"
    return found


def _caller_problems(spec: ServiceSpec) -> list[Problem]:
    how = spec.ingress.authentication if spec.ingress is not None else None
    if how is None or how.type == "None":
        return []
    at: Path = ("spec", "ingress", "authentication")
    found: list[Problem] = []
    if how.token is not None and how.token.secret_ref is None:
        what = "is missing: in a cluster callers' tokens are in a Secret"
        found.append(Problem((*at, "token", "secretRef"), None, what, "name the Secret"))
    if spec.tls is not None and spec.tls.issuer == "Off" and (spec.token_secret_ref is None or how.type == "MTLS"):
        what = "needs certificates, or tokenSecretRef, which replicas show"
        found.append(Problem((*at, "type"), how.type, what, "leave tls.issuer Off out, or give tokenSecretRef"))
    return found


def _lock_problems(spec: ServiceSpec) -> list[Problem]:
    return [
        problem._replace(path=("spec", "lock", name, *problem.path))
        for name, settings in spec.lock.given().items()
        for problem in settings.cluster_problems()
    ]


def _peer_problems(spec: ServiceSpec) -> list[Problem]:
    lists: tuple[tuple[Path, tuple[Peer, ...]], ...] = (
        (("spec", "ingress", "allowFrom"), (spec.ingress or Ingress()).allow_from),
        (("spec", "networkPolicy", "allowTo"), spec.network_policy.allow_to),
    )
    found = []
    for at, peers in lists:
        for index, peer in enumerate(peers):
            selects = peer.pod_selector is not None or peer.namespace_selector is not None
            if peer.ip_block is not None and selects:
                what = "has an ipBlock beside selectors"
                found.append(Problem((*at, index), None, what, "write selectors as another entry"))
            if peer.ip_block is None and not selects:
                remedy = "write namespaceSelector, podSelector or ipBlock; a selector {} is all of them"
                found.append(Problem((*at, index), None, "names nobody", remedy))
    return found


def _pod_problems(spec: ServiceSpec) -> list[Problem]:
    template, at = spec.pod_template, ("spec", "podTemplate")
    return [
        *(
            Problem((*at, "env", index), None, f"{item.name} is the operator's", "choose another name")
            for index, item in enumerate(template.env)
            if item.name.startswith(OWN_VARIABLES)
        ),
        *(
            Problem(
                (*at, "volumeMounts", index), None, f"{item.mount_path} is the operator's", "choose another mountPath"
            )
            for index, item in enumerate(template.volume_mounts)
            if item.mount_path.startswith(OWN_FOLDERS)
        ),
    ]


def read_status(raw: JsonObject) -> ServiceStatus:
    """Give the status as it was written last; an empty one where it can't be read."""
    return status_in(raw, ServiceStatus)
