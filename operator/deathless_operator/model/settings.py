"""What one installation of the operator is told by its chart; every plan is made under it.

Guarantees: a frozen record with a default for each value. Does not: read environment or files (the command line does).
Imports nothing of ours.
"""

from __future__ import annotations

import msgspec


class OperatorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The installation."""

    namespace: str = "deathless-system"  # where the operator runs, and its authority's Secret lies
    image: str = "deathless:latest"  # of drill runners and agents; services name their own
    cluster_domain: str = "cluster.local"
    # The lock store for services that name none. Its Secrets lie in `namespace` and are copied to each service.
    lock_endpoints: tuple[str, ...] = ()
    lock_tls_secret: str = ""  # keys ca.crt, tls.crt, tls.key; empty: no TLS files
    lock_user_secret: str = ""  # keys username, password; empty: no login
    lock_users: bool = False  # each service logs in to that store as a user of its own, once it is granted one
    # None: a NetworkPolicy is made for each service; False where another tool owns them.
    network_policies: bool = True
    api_server_ports: tuple[int, ...] = (443, 6443)  # what the announcer may reach
    certificate_life_s: int = 90 * 86400
    authority_life_s: int = 3650 * 86400
    check_deadline_s: int = 300  # an image that has not told its fingerprint by then is reported
    check_retry_s: int = 60  # a check that failed without an answer is made again after this
    step_deadline_s: int = 300  # a step of a roll that takes longer is reported as stalled
    prometheus_url: str = ""  # whom ramps' metrics are asked of, without a path at the end; empty: nobody
    resync_s: int = 300  # a service that needs nothing is looked at again after this
    drill_agents: bool = False  # whether drills may start privileged agents in `namespace`
    drill_agent_account: str = "deathless-drill-agent"  # their ServiceAccount
    drill_node_drain: bool = False  # whether drills may cordon nodes
    pull_policy: str = "IfNotPresent"  # of the images of services that do not say
    pull_secrets: tuple[str, ...] = ()  # Secrets in `namespace`, for runner and agent pods there
