"""What a PEM file of certificates says of itself, as far as the runtime needs it: URI names, and which ones it holds.

The standard library tells the names of a certificate that the other end showed, and none of our own; the operator's
`cryptography` is no dependency of replicas. So the one extension that is needed is read here.

Guarantees: bytes that are no certificate give no names; nothing is read beyond the bytes given. Does not: verify
anything. Imports nothing of ours.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from typing import Final

_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_ALTERNATIVE_NAMES: Final = bytes.fromhex("0603551d11")  # the object identifier 2.5.29.17 with its tag and length
_SEQUENCE: Final = 0x30
_OCTETS: Final = 0x04
_BOOLEAN: Final = 0x01
_URI: Final = 0x86  # context-specific [6] of GeneralName (RFC 5280, 4.2.1.6)


def certificates_of(pem: str) -> tuple[bytes, ...]:
    """Give each certificate in a PEM text as DER. Raises: ValueError."""
    return tuple(ssl.PEM_cert_to_DER_cert(found) for found in _PEM.findall(pem))


def uri_names(pem: str) -> tuple[str, ...]:
    """Give the URI names of the first certificate of a PEM text; none where it has none or is no certificate."""
    try:
        found = certificates_of(pem)
        return tuple(_uris(found[0])) if found else ()
    except (ValueError, IndexError):
        return ()


def _uris(der: bytes) -> Iterator[str]:
    """Read Extension ::= SEQUENCE { extnID, critical BOOLEAN DEFAULT FALSE, extnValue OCTET STRING }."""
    at = der.find(_ALTERNATIVE_NAMES)
    if at < 0:
        return
    rest = der[at + len(_ALTERNATIVE_NAMES) :]
    tag, value, after = _element(rest)
    if tag == _BOOLEAN:
        tag, value, _ = _element(after)
    if tag != _OCTETS:
        return
    tag, names, _ = _element(value)
    if tag != _SEQUENCE:
        return
    while names:
        tag, value, names = _element(names)
        if tag == _URI:
            yield value.decode("ascii")


def _element(data: bytes) -> tuple[int, bytes, bytes]:
    """Take one element off: its tag, its value, and what follows. Raises: IndexError, ValueError."""
    tag, size, at = data[0], data[1], 2
    if size & 0x80:
        count = size & 0x7F
        size, at = int.from_bytes(data[2 : 2 + count], "big"), 2 + count
    if at + size > len(data):
        raise ValueError("an element ends beyond its certificate")
    return tag, data[at : at + size], data[at + size :]
