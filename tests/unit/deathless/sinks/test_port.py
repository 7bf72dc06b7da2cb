"""The port: the store in memory and PostgreSQL's are stores, and a claim tells two processes of one epoch apart."""

from __future__ import annotations

import msgspec
from tests.unit.deathless.sinks.sink_lab import CLAIM

from deathless.sinks.port import Claim, Key, Store
from deathless.sinks.postgresql import PostgresqlStore


def test_postgresql_has_what_a_store_has() -> None:
    wanted = {name for name in vars(Store) if not name.startswith("_")}
    assert wanted == {"open", "write", "tip", "decisions", "skip", "adopt", "close"}
    assert wanted <= set(vars(PostgresqlStore))


def test_claims_of_one_epoch_differ_in_their_writer() -> None:
    assert Claim(Key("facts", "shop", 0, "0123456789abcdef" * 2), 1, 5, "w1") == CLAIM
    assert msgspec.structs.replace(CLAIM, writer="w2") != CLAIM
