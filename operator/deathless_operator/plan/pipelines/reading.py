"""Reads what agents of drivers tell on their pods.

Guarantees: what can't be read is nothing, never an error. Does not: fetch anything. Imports base and codec.
"""

from __future__ import annotations

import msgspec

from deathless.base.pipelines.agents import AgentStatus
from deathless.codec.untrusted import read_json


def read_agent_status(value: str) -> AgentStatus | None:
    """Give what an agent told last; None: nothing yet, or what can't be read."""
    try:
        return read_json(value.encode(), AgentStatus)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return None
