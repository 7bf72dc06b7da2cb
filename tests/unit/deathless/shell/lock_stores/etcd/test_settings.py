"""Settings that can't work are refused at start, by name."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from tests.unit.deathless.shell.named_certificates import new_authority

from deathless.base.errors import InvalidConfig
from deathless.shell.lock_stores.etcd.settings import EtcdSettings, EtcdTls, RenewedContext

GOOD = ("http://127.0.0.1:2379",)


@pytest.mark.parametrize(
    "endpoints", [GOOD, ("https://etcd.test:2379", "https://[::1]:2379/"), ("http://a:1", "http://b:2")]
)
def test_good_endpoints_are_accepted(endpoints: tuple[str, ...]) -> None:
    EtcdSettings(endpoints=endpoints).validate()


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "127.0.0.1:2379",
        "http://127.0.0.1",
        "ftp://a:1",
        "http://a:1/v3",
        "http://:2379",
        "http://a:x",
        "http://u@a:1",
    ],
)
def test_endpoint_that_is_no_base_url_is_refused(endpoint: str) -> None:
    with pytest.raises(InvalidConfig, match="endpoints"):
        EtcdSettings(endpoints=(endpoint,)).validate()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (EtcdSettings(endpoints=()), "endpoints"),
        (EtcdSettings(endpoints=GOOD, attempt_timeout_s=0), "attempt_timeout_s"),
        (EtcdSettings(endpoints=GOOD, attempt_timeout_s=2, call_timeout_s=1), "call_timeout_s"),
        (EtcdSettings(endpoints=GOOD, password="x"), "username"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: EtcdSettings, named: str) -> None:
    with pytest.raises(InvalidConfig, match=named):
        settings.validate()


def test_password_is_not_printed() -> None:
    assert "hunter2" not in repr(EtcdSettings(endpoints=GOOD, username="u", password="hunter2"))


def test_tls_file_that_is_missing_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "ca.pem"
    with pytest.raises(InvalidConfig, match=r"ca\.pem"):
        EtcdTls(ca_file=missing).context()
    with pytest.raises(InvalidConfig, match=r"client\.pem"):
        EtcdTls(cert_file=tmp_path / "client.pem", key_file=tmp_path / "client.key").context()


def test_tls_file_that_holds_something_else_is_named(tmp_path: Path) -> None:
    wrong = tmp_path / "ca.pem"
    wrong.write_text("not a certificate")
    with pytest.raises(InvalidConfig, match=r"ca\.pem"):
        EtcdTls(ca_file=wrong).context()


def test_password_is_read_anew_from_its_file_where_it_can_be(tmp_path: Path) -> None:
    path = tmp_path / "password"
    settings = EtcdSettings(endpoints=GOOD, username="bank", password="first", password_file=path)
    assert settings.current_password() == "first", "the file is being replaced"
    path.write_text("second\n")
    assert settings.current_password() == "second"
    path.write_bytes(b"\xff\xfe")
    assert settings.current_password() == "first"
    assert EtcdSettings(endpoints=GOOD, username="bank", password="first").current_password() == "first"


def test_files_that_are_replaced_while_they_are_loaded_are_loaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = new_authority().bundle
    path = tmp_path / "mounted.pem"
    path.write_bytes(bundle)
    create = ssl.create_default_context
    loads: list[str] = []

    def create_and_replace(*, cafile: str | None = None) -> ssl.SSLContext:
        context = create(cafile=cafile)
        loads.append(str(cafile))
        if len(loads) == 1:  # the node puts the next version there in this very moment
            path.unlink()
            path.write_bytes(bundle + b"\n")
        return context

    monkeypatch.setattr(ssl, "create_default_context", create_and_replace)
    renewed = RenewedContext(EtcdTls(ca_file=path))
    first = renewed.current()
    assert len(loads) == 2, "what was loaded first may be of the version before"
    assert renewed.current() is first and len(loads) == 2


def test_file_that_is_missing_at_the_start_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"none\.pem"):
        RenewedContext(EtcdTls(ca_file=tmp_path / "none.pem"))
