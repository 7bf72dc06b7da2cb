"""What the agent of a driver is started with, and what it tells of its driver; both stand in files, or on a pod.

Does not: read or write them (shell.operate.agents, spark.host). Imports base.tls.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from deathless.base.tls import TlsConfig

FOLDER: Final = "agents"
"""In the folder of the pipeline's service: a folder for each agent, by its name."""

CONFIG_VARIABLE: Final = "DEATHLESS_AGENT_CONFIG"
"""Environment variable of an agent in a pod: its config, as JSON. No secret stands in it."""
READY_FILE: Final = "ready"
"""In an agent's folder, while its driver drives or is warm."""

Role = Literal["driver", "warm", "starting"]


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one agent is started with. What is as by default is not written: an older agent need not know of it."""

    pipeline: str  # name of its service
    name: str  # d0, d1, ...
    module: str  # the function that gives the queries
    folder: str = ""  # where its drivers work, so that relative paths in their code start there; empty: where it does
    directory: str = ""  # of the pipeline's service, absolute; empty: it is at `addresses`
    addresses: tuple[str, ...] = ()  # client ports of its replicas, host:port
    tls: TlsConfig | None = None  # what is shown and trusted there, and where topics are read over HTTP
    service_token_file: str = ""  # with what is shown there
    beside: str = ""  # folder whose services are known by name; empty: only those that `services` names
    services: dict[str, str] = msgspec.field(default_factory=dict)  # name -> folder, or URLs divided by commas
    token_file: str = ""  # with what is shown to URLs
    trigger: str = "100 milliseconds"
    conf: dict[str, str] = msgspec.field(default_factory=dict)


class AgentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent tells of itself and its driver."""

    pid: int  # of the agent: what another one told before it is told no more
    agent: str  # its name at the pipeline's service
    role: Role
    number: int = 0  # under which its driver drives
    driver_pid: int = 0  # 0: it has none just now
    ui: str = ""  # address of Spark's pages; empty: there are none yet
