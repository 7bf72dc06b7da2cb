"""What fields of a manifest are made of: types of single values, and the base of every struct that has such fields.

Why apart: settings of lock stores are parts of a manifest, and the manifest's model is made from the lock stores there
are (`base.lock_stores`), so what both are written with stands below both.

Guarantees: every list, mapping and text has a maximum, so that rules over them stay cheap for an API server. Does not:
say which fields there are. Imports nothing of ours.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta


def told(explanation: str) -> Meta:
    """Say what a field means: shown by `kubectl explain` and in the documents, not in messages about mistakes.

    Args:
        explanation: one or more sentences.
    """
    return Meta(extra_json_schema={"explain": explanation})


Name = Annotated[
    str,
    Meta(
        pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$",
        max_length=40,
        description="a DNS label: lower-case letters, digits and inner dashes, at most 40 characters",
    ),
]
ObjectName = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        max_length=253,
        description="the name of an object: lower-case letters, digits, inner dashes and dots",
    ),
]
KindName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Z][A-Za-z0-9]*$",
        max_length=63,
        description="a kind as manifests write it: letters and digits, the first one upper-case",
    ),
]
Count = Annotated[int, Meta(gt=0)]
Seconds = Annotated[float, Meta(gt=0)]
Port = Annotated[int, Meta(ge=0, le=65535)]
Module = Annotated[
    str,
    Meta(
        pattern=r"^[^:]+:[A-Za-z_][A-Za-z0-9_]*$",
        max_length=1024,
        description="package.module:attribute or path/to/file.py:attribute",
    ),
]
NonEmpty = Annotated[str, Meta(min_length=1, max_length=253)]
Text = Annotated[str, Meta(max_length=1024)]
FilePath = Annotated[str, Meta(max_length=4096)]
LongText = Annotated[str, Meta(max_length=32768)]
Host = Annotated[
    str, Meta(pattern=r"^(\[[0-9a-fA-F:.]+\]|[^:\s]+)$", max_length=253, description="a host without its port")
]
_HOST: Final = r"(\[[0-9a-fA-F:.]+\]|[^\s/?#@,:\[\]]+)"  # no user and no password: those who see a manifest see both
_DIALED: Final = r"(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3})"  # 1 to 65535
Endpoint = Annotated[
    str,
    Meta(
        pattern=rf"^https?://{_HOST}(:{_DIALED})?$",
        max_length=512,
        description="a base URL without user and password: http://host:port or https://host:port, with a port from 1 "
        "to 65535",
    ),
]
Address = Annotated[
    str,
    Meta(
        pattern=rf"^{_HOST}:{_DIALED}$",
        max_length=300,
        description="an address: host:port, with a port from 1 to 65535",
    ),
]
Quantity = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$",
        max_length=32,
        description="a quantity as Kubernetes writes it, as text: 500m, 2, 1Gi",
    ),
]
Texts = Annotated[dict[str, Text], Meta(max_length=64)]
# Handed to Kubernetes as it is; the API server checks it when a pod is made from it.
AsIs = dict[str, object]


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A part of the manifest: camelCase, nothing unknown."""


class SecretRef(Part, frozen=True):
    """A Secret in the service's namespace."""

    name: Annotated[ObjectName, told("Name of the Secret.")]


class TlsFiles(Part, frozen=True):
    """PEM files on this machine. No effect in a cluster."""

    ca: Annotated[FilePath, told("File with the trusted authorities.")] = ""
    certificate: Annotated[FilePath, told("File with the certificate.")] = ""
    key: Annotated[FilePath, told("File with the certificate's key.")] = ""
    server_name: Annotated[Text, told("Name that the other side's certificate must have; if empty, its host name.")] = (
        ""
    )
