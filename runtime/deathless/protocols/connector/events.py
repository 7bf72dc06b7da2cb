"""Words between a machine of the connector protocol and the program around it that all four machines share.

Events say what happened, effects what is to be done, in the order given. Bytes are one event per read, effects one per
read or stretch, never one per message. Does not: do anything. Imports nothing of ours.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesReceived:
    """The other end sent these."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOpened:
    """The connection stands; only for the end that connected, which speaks first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLost:
    """The connection is gone, or was closed by the other end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Effect: write these bytes to the connection."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """Effect: close the connection, once what was to be sent is written. It is the last effect of a machine."""

    code: str  # of our error, as in docs/errors; empty: the other end ended it, or it was wanted
    text: str  # why, for people
