"""Who may read a topic over HTTP: whom the manifest names, and who may do anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from deathless.base.config import AuthenticationConfig, DriverConfig, ReplicaConfig, TlsConfig
from deathless.base.errors import TopicNotReadable, UnknownHandler
from deathless.base.safeguards import Safeguards
from deathless.base.topics.settings import Topic, topic_configs
from deathless.shell.ingress.callers import Admitted
from deathless.shell.ingress.operators import Operators, operators_of
from deathless.shell.ingress.topic_readers import TopicReaders, readers_at

NAMED = {"sales": frozenset({"reports"}), "open": frozenset({"*"}), "closed": frozenset[str]()}
NOBODY = Admitted(b"", "")
OPERATOR = b"the operators' own token"
TOKENS = AuthenticationConfig(type="Token", tokens="/tokens")
MUTUAL = TlsConfig(certificate="c", key="k", ca="a", require_client_certificate=True)
SERVER = TlsConfig(certificate="c", key="k", ca="a", require_client_certificate=False)


def test_readers_are_those_that_are_named() -> None:
    readers = TopicReaders(NAMED, Operators(refusal="nobody"))
    reports, other = Admitted(b"t", "reports"), Admitted(b"t", "others")
    assert [topic for topic in NAMED if readers.may(topic, reports)] == ["sales", "open"]
    assert [topic for topic in NAMED if readers.may(topic, other)] == ["open"]
    assert [topic for topic in NAMED if readers.may(topic, NOBODY)] == ["open"]
    readers.admit("sales", reports)
    with pytest.raises(TopicNotReadable, match="others is no reader of topic 'sales'"):
        readers.admit("sales", other)
    with pytest.raises(TopicNotReadable, match="who shows this is no reader of topic 'none'"):
        readers.admit("none", NOBODY)


def test_everybody_reads_without_the_safeguard() -> None:
    readers = TopicReaders(NAMED, Operators(refusal="nobody"), safeguards=Safeguards(topic_readers_only=False))
    readers.admit("closed", NOBODY)


def test_operators_read_all_and_are_told_what_there_is_not() -> None:
    readers = TopicReaders(NAMED, Operators(token=OPERATOR.decode(), refusal="callers are none"))
    readers.admit("closed", Admitted(OPERATOR, ""))
    with pytest.raises(UnknownHandler, match="keeps no topic 'none'"):
        readers.admit("none", Admitted(OPERATOR, ""))
    assert not readers.may("closed", Admitted(b"another", ""))


def config(listen: str = "127.0.0.1:0", **more: object) -> ReplicaConfig:
    drivers = (*topic_configs([Topic(name="sales", readers=("reports",))], "/d"), DriverConfig(name="m", kind="files"))
    return ReplicaConfig(
        service="bank", module="m:bank", directory="/d", replica="r0", ingress_listen=listen, drivers=drivers,
        **more,  # type: ignore[arg-type]  # each test knows its fields
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "anybody"),
    [
        (config(), True),  # nothing is asked for, on this machine alone
        (config("0.0.0.0:80"), False),
        (config(token="t"), True),  # it was shown, or nobody comes so far
        (config("0.0.0.0:80", token="t"), True),
        (config(tls=MUTUAL), False),  # a certificate that nobody named
        (config("0.0.0.0:80", tls=MUTUAL), False),
        (config(tls=MUTUAL, token="t"), True),
        (config(tls=SERVER), True),
        (config("0.0.0.0:80", tls=SERVER), False),
        (config(tls=MUTUAL, ingress_tls="Server"), False),
        (config(token="t", authentication=TOKENS), False),
        (config(operator_token=OPERATOR.decode()), False),
    ],
)
def test_who_shows_what_tools_show_reads_all(found: ReplicaConfig, anybody: bool) -> None:
    readers = readers_at(found, operators_of(found, lambda _: ""))
    assert readers.topics == {"sales": {"reports"}}
    assert readers.may("sales", NOBODY) is anybody
    assert readers.is_operator(NOBODY) is anybody
    assert readers.may("sales", Admitted(b"", "reports"))


def test_a_token_of_operators_in_a_file_counts_as_it_comes(tmp_path: Path) -> None:
    path = tmp_path / "token"
    found = config(operator_token_file=str(path))
    readers = readers_at(found, operators_of(found, lambda _: ""))
    assert readers.may("sales", NOBODY)
    path.write_bytes(OPERATOR)
    assert (readers.may("sales", NOBODY), readers.may("sales", Admitted(OPERATOR, ""))) == (False, True)
