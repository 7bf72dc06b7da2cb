"""An origin that is named may call, any other gets no header; without the setting nobody does."""

from __future__ import annotations

from deathless.shell.web.cross_origin import CrossOrigin

APP, OTHER = b"https://app.example", b"https://other.example"


def test_without_the_setting_nothing_is_said() -> None:
    off = CrossOrigin()
    assert off.headers(APP) == ()
    assert off.preflight(APP) is None


def test_named_origin_is_allowed_and_caches_are_told_that_it_matters() -> None:
    some = CrossOrigin(["https://app.example"])
    assert (b"access-control-allow-origin", APP) in some.headers(APP)
    assert some.headers(OTHER) == ((b"vary", b"origin"),)
    assert some.preflight(OTHER) is None
    told = dict(some.preflight(APP) or ())
    assert told[b"access-control-allow-methods"] == b"GET, HEAD, POST"
    assert b"authorization" in told[b"access-control-allow-headers"].split(b", ")
    assert b"access-control-allow-credentials" not in told


def test_every_origin_may_be_allowed() -> None:
    assert (b"access-control-allow-origin", b"*") in CrossOrigin(["*"]).headers(OTHER)
    assert CrossOrigin(["*"]).preflight(OTHER) is not None
