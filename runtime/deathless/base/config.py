"""What one replica's processes are started with; the manifest becomes one of these per replica.

Guarantees: a frozen record that survives JSON. Does not: read files or check that what it names exists (the
processes do, at start, with an error that names field and value). Imports limits, errors and identities, and the lock
stores there are: each that has settings has a field of its name here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar

import msgspec

from deathless.base.errors import InvalidConfig
from deathless.base.identities import AllowedService
from deathless.base.limits import Limits
from deathless.base.lock_stores import config_classes, with_fields
from deathless.base.lock_stores.etcd import EtcdConfig
from deathless.base.shards import Sharding, service_directory, shard_name
from deathless.base.tls import TlsConfig

S = TypeVar("S", bound=msgspec.Struct)


class PeerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where another service is found that ours sends to; without one it is looked for in the folder beside ours."""

    name: str
    directory: str = ""  # of the service; the members/ of its shards say where their replicas listen
    addresses: tuple[str, ...] = ()  # client ports of some of its replicas, host:port, instead or besides
    token: str = ""  # it wants to be shown; ours when empty
    server_name: str = ""  # its certificate must carry; ours, or the host dialed, when empty
    shards: int = 1  # it has


class ActivitiesConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who runs activities beside the primary."""

    workers: int = 2  # processes, each with one activity at a time


class TracingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where spans go, and which requests begin a trace."""

    endpoint: str = ""  # base URL of an OTLP collector; empty: as OTEL_EXPORTER_OTLP_* say
    sample_ratio: float = 1.0  # of the requests without a trace of their caller


class DriverConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An out-driver: what this service sends to its name reaches the world outside."""

    name: str
    kind: str  # of base.driver_kinds, or package.module:factory, or path/to/file.py:factory
    on_refusal: str = "stop"  # stop | skip
    batch_messages: int = 256
    attempts_max: int = 0  # of one message, by a driver that delivers each by itself; 0: no limit
    age_max_s: float = 86_400.0  # likewise, since it was taken; 0: no limit
    options: dict[str, object] = {}  # of the kind
    folder: str = "."  # absolute: what relative paths start from


class SinkConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sink: a reader of a topic that stores its rows in a table."""

    name: str
    topic: str
    topic_directory: str  # absolute: of the topic in the shard's directory
    store: str  # postgresql
    table: str  # its name, or schema.table
    columns: dict[str, str] = {}  # by column of the table: the topic's column; empty: those of the class, by name
    dsn: str = ""
    dsn_file: str = ""
    schema: str = "deathless"  # of our own tables
    create: bool = False  # the table, where it is missing
    block_rows: int = 100_000
    block_s: float = 5.0  # a block with fewer rows waits so long for more
    hold_bytes_max: int = 10 << 30  # 0: no limit
    on_refusal: str = "stop"  # stop | deadLetter
    folder: str = "."  # absolute: what relative paths start from


class SourceConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A source: what brings rows from outside to an input."""

    name: str
    kind: str  # of base.source_kinds
    input: str
    key: str = ""  # value.FIELD, key, or empty for a single object
    on_refusal: str = "stop"  # stop | deadLetter | skip
    options: dict[str, object] = {}  # of the kind
    folder: str = "."  # absolute: what relative paths start from
    listen: str = ""  # host:port at which clients connect to a gate; empty: as the options say


class BindingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An application in another language, which is the code of its service."""

    command: tuple[str, ...]  # empty: somebody else starts it, and it connects the two ports that are named here
    instance: str  # what it calls itself
    receive_port: int = 0  # that it connects to send; 0: any, which it is told
    send_port: int = 0  # that it connects to receive; likewise
    environment: dict[str, str] = {}
    folder: str = "."  # that it runs in
    compare: str = "Bytes"  # Bytes | Shape
    checkpoint_rows: int = 10_000  # a checkpoint is due after so many
    checkpoint_bytes: int = 64 << 20  # likewise
    checkpoints_kept: int = 2  # so many of the newest stay, with the rows behind the oldest of them; 0: all
    version: int = -1  # of the program, as its checkpoints tell it; -1: nobody numbers them
    next_version: int = -1  # that the program, which has both in it, is to go over to; -1: it stays
    connect_s: float = 30.0  # how long it may take; 0: for ever
    load_s: float = 600.0
    snapshot_s: float = 600.0
    handler_s: float = 60.0


class AuthenticationConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How callers prove who they are; see `core.access.callers` for what each type does."""

    type: str  # None | Token | MTLS | OIDC
    allowed: tuple[str, ...] = ()  # names of callers; empty: everybody who is known
    tokens: str = ""  # with Token: absolute path of a folder with a file for each caller, or of one such file
    issuer: str = ""  # with OIDC, as all below: what the claim iss must say
    audiences: tuple[str, ...] = ()
    name_claim: str = "sub"
    required_claims: dict[str, str] = {}
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    keys_url: str = ""  # of the issuer's JWKS; empty: as the issuer's discovery document says
    ca: str = ""  # file with the authorities of the issuer's own certificate; empty: the machine's
    leeway_s: int = 30

    @property
    def asks(self) -> bool:
        """Must callers prove who they are?"""
        return self.type != "None"


class UpgradeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An upgrade that a replica is started for: until it is made, the replica follows by the former code."""

    id: str  # 32 hex digits
    from_generation: int  # of the log that it is made of
    from_fingerprint: str  # of the former code, 32 hex digits
    from_version: int  # as its author calls the former code
    former: str = ""  # Unix socket at which it is served; empty: it is started as a process, by the next three
    interpreter: str = ""  # that runs it
    code: str = ""  # name of the folder in code/ with its copy; empty: the module as it stands
    module: str = ""  # of the former code
    time_us: int = 0  # that migrations are shown, microseconds since 1970


class ReplicaConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One replica. Addresses are host:port; port 0 takes any free one and announces it in members/."""

    service: str
    module: str  # package.module:attribute or path/to/file.py:attribute
    directory: str  # the shard's directory, shared by all replicas
    replica: str
    client_listen: str = "127.0.0.1:0"
    replication_listen: str = "127.0.0.1:0"
    control_listen: str = "127.0.0.1:0"
    ingress_listen: str = ""  # empty: no HTTP ingress beside this replica
    token: str = ""  # clients and tools must show it
    operator_token: str = ""  # what operators show at the HTTP ingress, where callers may not give orders; empty: none
    operator_token_file: str = ""  # the same, read while the ingress runs: it may come, change and go; pods have it
    tls: TlsConfig | None = None
    lock: str = "directory"  # a name of base.lock_stores; its settings are in the field of that name
    if TYPE_CHECKING:  # what our own sources and tests read by name of the fields that lock stores have
        etcd: EtcdConfig | None = None
    fence: str = "seal"  # seal | etcd
    promote_checkpointer: str = "WhenAlone"  # WhenAlone | Always
    log_level: str = "info"
    advertise_host: str = ""  # announced to others instead of the host listened on: a pod's address
    instance: str = ""  # which of several that call themselves this replica: a pod's uid; empty: only one ever runs
    ingress_tls: str = ""  # empty: as the other ports | Server: no client certificate is asked for | Off: plain HTTP
    health_listen: str = ""  # plain HTTP for probes and metrics; empty: none
    announce_kubernetes: bool = False  # write role and status on our own pod, and obey its annotation "fenced"
    termination_file: str = ""  # where the last error is left for the operator; empty: nowhere
    token_file: str = ""  # `deathless replica` reads the token from it
    allow_services: tuple[AllowedService, ...] = ()  # that may call and send; empty: replicas of the namespace may send
    cors_origins: tuple[str, ...] = ()  # whose pages may call over HTTP from a browser; `*`: all
    authentication: AuthenticationConfig | None = None  # of callers; None: by `token` where there is one, as ever
    peers: tuple[PeerConfig, ...] = ()  # services that ours sends to and that are not beside it
    activities: ActivitiesConfig = ActivitiesConfig()
    drivers: tuple[DriverConfig, ...] = ()  # processes beside this replica that write to the world outside
    sinks: tuple[SinkConfig, ...] = ()  # processes beside this replica that store rows of topics outside
    sources: tuple[SourceConfig, ...] = ()  # processes beside this replica that bring rows to inputs
    binding: BindingConfig | None = None  # the application that is our code; None: the module is
    tracing: TracingConfig | None = None  # None: no traces
    allow_any_file_system: bool = False  # run the seal fence where the allow-list says no
    upgrade: UpgradeConfig | None = None  # that this replica is to make; None: it is a replica as others
    former: str = ""  # in a pod: Unix socket at which other code than this image's is served, if the log is of that
    limits: dict[str, int | float] = {}  # by the names of `Limits`
    code: str = (
        ""  # name of the folder in code/ whose copy of the author's modules runs; empty: the module as it stands
    )
    shard: int = 0  # ours
    shards: int = 1  # of the service, fixed at creation

    @property
    def shard_name(self) -> str:
        """What our shard is called in its record and in handshakes: the service's name where it is the only one."""
        return shard_name(self.service, self.shard, self.shards)

    @property
    def service_directory(self) -> str:
        """The directory of the service: ours, where there is one shard."""
        return service_directory(self.directory, self.shards)

    @property
    def sharding(self) -> Sharding:
        """What our turns know of shards."""
        peers = {peer.name: peer.shards for peer in self.peers}
        return Sharding(shard=self.shard, shards=self.shards, peers=peers)

    @property
    def owner(self) -> str:
        """Our part of file names that no other living process may use: the replica, with its instance if it has one."""
        return f"{self.replica}.{self.instance}" if self.instance else self.replica

    @property
    def asks_callers(self) -> bool:
        """Do callers prove who they are in a way of their own, apart from `token`, which tools and peers show?"""
        return self.authentication is not None and self.authentication.asks

    def lock_settings(self, kind: type[S]) -> S:
        """Give the settings of our lock store: those that are in its field, or as they are by default.

        Args:
            kind: of the settings, as the lock store is registered.
        """
        found = getattr(self, self.lock)
        if found is None:
            return kind()
        assert isinstance(found, kind), f"{self.lock} has settings of another kind"
        return found

    def with_lock(self, name: str, settings: msgspec.Struct | None) -> Self:
        """Give the config with this lock store and its settings; None: it has none."""
        given = {} if settings is None else {name: settings}
        return msgspec.structs.replace(self, lock=name, **given)

    def make_limits(self) -> Limits:
        """Give the limits with this replica's changes. Raises: InvalidConfig."""
        try:
            limits = msgspec.convert(self.limits, Limits)
        except msgspec.ValidationError as error:
            raise InvalidConfig(f"limits: {error}") from None
        unknown = sorted(set(self.limits) - set(Limits.__dataclass_fields__))
        if unknown:
            raise InvalidConfig(f"limits.{unknown[0]} is not known")
        limits.validate()
        return limits


if not TYPE_CHECKING:
    ReplicaConfig = with_fields(ReplicaConfig, {name: kind | None for name, kind in config_classes().items()})


__all__ = [
    "ActivitiesConfig",
    "AuthenticationConfig",
    "BindingConfig",
    "DriverConfig",
    "EtcdConfig",
    "PeerConfig",
    "ReplicaConfig",
    "SourceConfig",
    "TlsConfig",
    "TracingConfig",
    "UpgradeConfig",
]
