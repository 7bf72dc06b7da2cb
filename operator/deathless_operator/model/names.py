"""Every name that the operator, the replicas and the chart must agree on (0005, "Objects of one DeathlessService").

Why: a label that two places spell differently is an outage. Guarantees: one spelling each. Does not: know objects'
contents. Imports nothing of ours.
"""

from __future__ import annotations

from typing import Final

GROUP: Final = "deathless.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
SERVICE_KIND: Final = "DeathlessService"
SERVICE_PLURAL: Final = "deathlessservices"
DRILL_KIND: Final = "FailoverDrill"
DRILL_PLURAL: Final = "failoverdrills"
LIVE_UPGRADE_KIND: Final = "LiveUpgrade"
LIVE_UPGRADE_PLURAL: Final = "liveupgrades"
REPLAY_KIND: Final = "Replay"
REPLAY_PLURAL: Final = "replays"
REHEARSAL_KIND: Final = "Rehearsal"
REHEARSAL_PLURAL: Final = "rehearsals"
PIPELINE_KIND: Final = "SparkPipeline"
PIPELINE_PLURAL: Final = "sparkpipelines"
FIELD_MANAGER: Final = "deathless-operator"

# Labels.
LABEL_NAME: Final = "app.kubernetes.io/name"
LABEL_INSTANCE: Final = "app.kubernetes.io/instance"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
LABEL_SERVICE: Final = f"{GROUP}/service"
LABEL_REPLICA: Final = f"{GROUP}/replica"
LABEL_SHARD: Final = f"{GROUP}/shard"  # on pods of a service with several shards: 0, 1, ...
LABEL_ROLE: Final = f"{GROUP}/role"
LABEL_SERVING: Final = f"{GROUP}/serving"  # "false": the primary doesn't hear it; pods are made with "true"
LABEL_TEMPLATE: Final = f"{GROUP}/template"  # hash of the pod template a pod was made from
LABEL_PURPOSE: Final = f"{GROUP}/purpose"  # check, upgrade, drill, erase, adopt, replay or rehearsal
LABEL_PIPELINE: Final = f"{GROUP}/pipeline"  # on drivers' pods and what belongs to them: the pipeline's name
ROLE_DRIVER: Final = "driver"  # of a pod whose Spark driver drives; its agent sets and removes it
ROLE_PRIMARY: Final = "primary"
SERVING: Final = "true"

# Annotations.
STATUS_ANNOTATION: Final = f"{GROUP}/status"  # on pods, written by the announcer
FENCED_ANNOTATION: Final = f"{GROUP}/fenced"  # on pods "true"; on a service "r0,r2" or "*"
FENCED_AT_ANNOTATION: Final = f"{GROUP}/fenced-at"  # on pods: wall seconds at which the operator asked for it
PAUSED_ANNOTATION: Final = f"{GROUP}/paused"  # on a service "true": the operator changes nothing
APPLIED_ANNOTATION: Final = f"{GROUP}/applied"  # hash of what the operator applied last
SEEN_GENERATION_ANNOTATION: Final = f"{GROUP}/seen-generation"  # beside that: at which it was applied again
INSTALLATION_ANNOTATION: Final = f"{GROUP}/installation"  # namespace of the operator that looks after it
IMAGE_ANNOTATION: Final = f"{GROUP}/image"  # on the StatefulSet: the image that was accepted
MODULE_ANNOTATION: Final = f"{GROUP}/module"  # on the StatefulSet: the module that was accepted with its image
PEERS_ANNOTATION: Final = f"{GROUP}/peers"  # on the StatefulSet: shards of other services that were accepted, JSON
LIMITS_ANNOTATION: Final = f"{GROUP}/limits"  # on the StatefulSet: limits that are part of the accepted code, JSON
UPGRADING_TO_ANNOTATION: Final = (
    f"{GROUP}/upgrading-to"  # on the StatefulSet: the code of an upgrade, JSON; on upgraders' pods: its fingerprint
)
LOSSES_ANNOTATION: Final = f"{GROUP}/upgrade-losses"  # on the StatefulSet: how often replicas lost spoilt an upgrade
UPGRADE_ANNOTATION: Final = f"{GROUP}/upgrade"  # on a service: the user's word, a fingerprint that is upgraded to
LEFT_BEHIND_ANNOTATION: Final = (
    f"{GROUP}/left-behind"  # on the StatefulSet: hash of the spec's image and module that a LiveUpgrade went past
)
ACTION_ANNOTATION: Final = f"{GROUP}/action"  # on a LiveUpgrade: followed in place of its spec.action
UPGRADE_OF_ANNOTATION: Final = f"{GROUP}/upgrade-of"  # on a driving pod: hash of what it was asked for
ATTEMPT_ANNOTATION: Final = f"{GROUP}/attempt"  # on a driving pod: 1, 2, ...
CONFIG_ANNOTATION: Final = f"{GROUP}/config"  # on pods: hash of replica.json
LOCK_SECRETS_ANNOTATION: Final = f"{GROUP}/lock-secrets"  # on a ConfigMap: Secrets that pods of it mount, by commas
LABEL_READABLE: Final = f"{GROUP}/readable"  # "true" on another's Secret: its owner lets the operator look at it
HIDDEN_ANNOTATION: Final = f"{GROUP}/hidden"  # never stored: what is there may not be looked at
SOURCE_ANNOTATION: Final = f"{GROUP}/source"  # on a copied Secret: digest of what it was copied from
ADOPTED_CODE_ANNOTATION: Final = f"{GROUP}/adopted-code"  # on a service: fingerprint that `upgrade --offline` took
DISTRUST_ANNOTATION: Final = f"{GROUP}/distrust"  # on the authority's Secret "true": it is replaced without an overlap
DRILL_FINALIZER: Final = f"{GROUP}/drill"  # on a drill while a run is active: what it did is undone first
DRILL_ANNOTATION: Final = f"{GROUP}/drill"  # on its pods, and nodes it cordoned: namespace/drill/run
PURPOSE_DRILL: Final = "drill"
LOG_RUN_ANNOTATION: Final = f"{GROUP}/log-run"  # on the pod of a run of a log: kind/namespace/name
WITHDRAWN_ANNOTATION: Final = (
    f"{GROUP}/withdrawn"  # on the table of the lock store's users "true": logins are off for good
)
ERASE_ANNOTATION: Final = f"{GROUP}/erases"  # on what erases the keys of a service that is gone: namespace/name
PURPOSE_ERASE: Final = "erase"
PURPOSE_ADOPT: Final = "adopt"
PURPOSE_UPGRADE: Final = "upgrade"
PURPOSE_REPLAY: Final = "replay"
PURPOSE_REHEARSAL: Final = "rehearsal"
PURPOSE_DRIVER: Final = "pipeline-driver"

# Ports.
CLIENT_PORT: Final = 7401
REPLICATION_PORT: Final = 7402
CONTROL_PORT: Final = 7403
HTTP_PORT: Final = 8080
HEALTH_PORT: Final = 8081
SPARK_UI_PORT: Final = 4040  # on the loopback address of a driver's pod
SERVICE_HTTP_PORT: Final = 80
SERVICE_HTTPS_PORT: Final = 443  # where the front door shows a certificate

# Paths in a pod.
CONFIG_FOLDER: Final = "/etc/deathless"
CONFIG_FILE: Final = "replica.json"
TLS_FOLDER: Final = "/etc/deathless-tls"
LOCK_TLS_FOLDER: Final = "/etc/deathless-lock-tls"
LOCK_USER_FOLDER: Final = "/etc/deathless-lock-user"
TOKEN_FOLDER: Final = "/etc/deathless-token"  # noqa: S105 - a folder's name, no secret
CALLERS_FOLDER: Final = "/etc/deathless-callers"
ISSUER_CA_FOLDER: Final = "/etc/deathless-issuer-ca"
OPERATOR_TOKEN_FOLDER: Final = "/etc/deathless-operator-token"  # noqa: S105 - a folder's name, no secret
OPERATOR_TOKEN_KEY: Final = "token"  # noqa: S105 - the name of a Secret's key
DRIVERS_FOLDER: Final = "/etc/deathless-drivers"  # in it a folder with the Secret of each driver that names one
DRIVER_SECRET_FOLDER: Final = "/etc/deathless-secret"  # noqa: S105 - a folder's name, no secret
SINKS_FOLDER: Final = "/etc/deathless-sinks"  # in it a folder with the Secret of each sink that names one
SOURCES_FOLDER: Final = "/etc/deathless-sources"  # in it a folder with the Secret of each source that names one
LOG_FOLDER: Final = "/var/lib/deathless/log"
RUN_FOLDER: Final = "/tmp"  # noqa: S108 - a pod's own emptyDir: the root file system is read-only
FORMER_SOCKET: Final = f"{RUN_FOLDER}/former.sock"  # where the code that is upgraded from is asked
CONTAINER: Final = "replica"
DRIVER_CONTAINER: Final = "driver"
FORMER_CONTAINER: Final = "former"
ACCOUNT_FOLDER: Final = "/var/run/secrets/kubernetes.io/serviceaccount"  # where Kubernetes mounts a token

AUTHORITY_SECRET: Final = "deathless-ca"  # noqa: S105 - a Secret's name
AUTHORITY_CONFIG_MAP: Final = "deathless-ca"  # the authorities that are trusted, without keys
# Of the chart's lock store with a user for each service, in the operator's namespace.
LOCK_USERS_SECRET: Final = "deathless-lock-users"  # noqa: S105 - a Secret's name; it holds a password for each user
LOCK_USERS_TLS_SECRET: Final = "deathless-lock-store-user-tls"  # noqa: S105 - likewise
LOCK_ADMIN_SECRET: Final = "deathless-lock-admin"  # noqa: S105 - likewise
LOCK_ADMIN: Final = "deathless-lock-admin"
LOCK_MEMBERS: Final = "deathless-lock-store"  # common name of the members' certificates; never a user (lock_users)


def of_shard(name: str, shard: int) -> str:
    """Name the StatefulSet of a shard, which the names of its pods and other objects begin with.

    The first shard is called as a service of one shard is.
    """
    return f"{name}-s{shard}" if shard else name


def primary_service(name: str) -> str:
    """Name the Service that points at the primary."""
    return f"{name}-primary"


def headless_service(name: str) -> str:
    """Name the Service that gives pods their names."""
    return f"{name}-replicas"


def config_map(name: str, mark: str = "") -> str:
    """Name the ConfigMap with replica.json.

    Args:
        name: of the shard's StatefulSet.
        mark: hash of what it holds; empty: the one name that operators of before used for every content.
    """
    return _marked(f"{name}-config", mark)


def tls_secret(name: str) -> str:
    """Name the Secret with the replicas' certificate."""
    return f"{name}-tls"


def client_tls_secret(name: str) -> str:
    """Name the Secret with the clients' certificate."""
    return f"{name}-client-tls"


def lock_tls_secret(name: str, mark: str = "") -> str:
    """Name the copy of the installation's certificate for the lock store.

    Args:
        name: of the service.
        mark: tells one store from another; empty: the one name that operators of before used for every store.
    """
    return _marked(f"{name}-lock-tls", mark)


def lock_user_secret(name: str, mark: str = "") -> str:
    """Name the copy of the installation's user of the lock store; arguments as for `lock_tls_secret`."""
    return _marked(f"{name}-lock-user", mark)


def _marked(name: str, mark: str) -> str:
    return f"{name}-{mark}" if mark else name


def operator_token_secret(name: str) -> str:
    """Name the Secret with the token that operators show at the HTTP ingress."""
    return f"{name}-operator-token"


def log_claim(name: str) -> str:
    """Name the PersistentVolumeClaim that the operator makes."""
    return f"{name}-log"


def check_pod(name: str, digest: str) -> str:
    """Name the pod that finds an image's fingerprint."""
    return f"{name}-check-{digest}"


def upgrade_pod(name: str, digest: str) -> str:
    """Name the pod that leads through an upgrade."""
    return f"{name}-upgrade-{digest}"


def adopt_pod(name: str) -> str:
    """Name the pod that runs `deathless adopt` on a service's log; the name is the lock: one at a time."""
    return f"{name}-adopt"


def runner_pod(name: str) -> str:
    """Name the pod that calls a service while it is drilled; the name is the lock: one drill per service."""
    return f"{name}-drill"


def agent_pod(namespace: str, name: str) -> str:
    """Name the pod, in the operator's namespace, that breaks something of a service."""
    return f"{namespace}-{name}-drill-agent"


def erase_record(namespace: str, name: str) -> str:
    """Name the ConfigMap, in the operator's namespace, that says which keys go with a service."""
    return f"{namespace}.{name}.erase"


def erase_pod(name: str, digest: str) -> str:
    """Name the pod that erases the keys of a service that is gone."""
    return f"{name}-erase-{digest}"


def drivers(name: str) -> str:
    """Name the StatefulSet of a pipeline's drivers, and all else that belongs to them."""
    return f"{name}-drivers"


def ui_service(name: str) -> str:
    """Name the Service that points at the driver that drives."""
    return f"{name}-ui"


def pod(name: str, ordinal: int) -> str:
    """Name the pod of replica `r<ordinal>`."""
    return f"{name}-{ordinal}"


def lock_prefix(namespace: str) -> str:
    """Name the keys of a namespace in the lock store; below it each service has its name."""
    return f"/deathless/{namespace}/"


def lock_user(namespace: str, name: str) -> str:
    """Name a service's user of the chart's lock store, its role, and its entry in the table of users."""
    return f"{namespace}.{name}"


def server_name(namespace: str, name: str) -> str:
    """Give the name that every replica's certificate carries, by which replicas and clients know them."""
    return f"{name}.{namespace}.svc"


def selector(name: str) -> dict[str, str]:
    """Give the labels that replicas' pods have, and pods for checks and drills have not."""
    return {LABEL_NAME: "deathless", LABEL_INSTANCE: name}


def shard_selector(name: str, shard: int, shards: int) -> dict[str, str]:
    """Give the labels that the replicas of one shard have, and those of the others have not."""
    return selector(name) | shard_label(shard, shards)


def shard_label(shard: int, shards: int) -> dict[str, str]:
    """Give the label that tells pods of several shards apart; none where there is one shard."""
    return {LABEL_SHARD: str(shard)} if shards > 1 else {}


def member(ordinal: int, shard: int, shards: int) -> str:
    """Name a replica as people read and write it: `r0`, or `1/r0` of shard 1 where there are several."""
    return f"{shard}/r{ordinal}" if shards > 1 else f"r{ordinal}"


def driver_selector(name: str) -> dict[str, str]:
    """Give the labels that the pods of a pipeline's drivers have, and replicas have not."""
    return {LABEL_PIPELINE: name, LABEL_PURPOSE: PURPOSE_DRIVER}


def driver_labels(name: str) -> dict[str, str]:
    """Give the labels of every object that belongs to a pipeline's drivers."""
    found = {LABEL_NAME: "deathless-driver", LABEL_INSTANCE: name, LABEL_MANAGED_BY: FIELD_MANAGER}
    return found | driver_selector(name)


def labels(name: str) -> dict[str, str]:
    """Give the labels of every object of service `name`."""
    return {
        LABEL_NAME: "deathless",
        LABEL_INSTANCE: name,
        LABEL_MANAGED_BY: FIELD_MANAGER,
        LABEL_SERVICE: name,
    }
