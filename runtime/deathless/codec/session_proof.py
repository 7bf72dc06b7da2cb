"""What shows that a session is its owner's: a secret that the client draws, of which the log knows the hash alone.

    client:  secret, 16 random bytes, kept in memory until the session ends
    REGISTER carries nonce = BLAKE2b-128(secret): that is logged, and stands in checkpoints, backups and copies
    HELLO    of a later connection shows the secret itself

So whoever reads a log, a backup or another client's packets of the log can't speak in a session of it. Where the
client showed a certificate when it registered, what is logged is bound to the certificate's name too: then secret and
name are both needed. The name and not the certificate, so that a renewal changes nothing.

Does not: compare (`core.primary.session_owners` does, in constant time). Imports nothing of ours.
"""

from __future__ import annotations

import hashlib
from typing import Final

SECRET_BYTES: Final = 16  # what clients of ours draw
NONCE_BYTES: Final = 16  # of a REGISTER


def nonce_of(secret: bytes) -> bytes:
    """Give what a REGISTER carries for this secret."""
    return hashlib.blake2b(secret, digest_size=NONCE_BYTES).digest()


def named_nonce(nonce: bytes, name: str) -> bytes:
    """Give what is logged for a REGISTER with this nonce.

    Args:
        nonce: as it was sent, 16 bytes.
        name: in the certificate that the connection showed; empty: it showed none, and the nonce is logged as it is.
    """
    if not name:
        return nonce
    key = hashlib.blake2b(name.encode(), digest_size=hashlib.blake2b.MAX_KEY_SIZE).digest()
    return hashlib.blake2b(nonce, digest_size=NONCE_BYTES, key=key).digest()
