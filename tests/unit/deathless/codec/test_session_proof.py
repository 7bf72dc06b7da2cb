"""What a REGISTER carries, and what is logged of it."""

from __future__ import annotations

import hashlib

from deathless.codec.session_proof import NONCE_BYTES, named_nonce, nonce_of


def test_nonce_is_the_blake2b_hash_of_the_secret() -> None:
    assert nonce_of(b"secret") == hashlib.blake2b(b"secret", digest_size=16).digest()
    assert len(nonce_of(b"")) == NONCE_BYTES


def test_name_of_a_certificate_changes_what_is_logged_and_no_name_does_not() -> None:
    nonce = nonce_of(b"secret")
    assert named_nonce(nonce, "") == nonce
    names = {named_nonce(nonce, name) for name in ("", "alice", "bob", "bö" * 1000)}
    assert len(names) == 4
    assert {len(logged) for logged in names} == {NONCE_BYTES}
