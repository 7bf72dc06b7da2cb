"""Who may speak: versions, cookies, and errors that tell no secret."""

from __future__ import annotations

import hmac

import pytest

from deathless.base.errors import CorruptFrame, NoCommonVersion, Unauthorized
from deathless.protocols.connector.frames import PREFIX_BYTES, VERSIONS, Error, Hello, decode
from deathless.protocols.connector.handshake import check_hello, error_frame

SECRET = b"Dragons-Love-Tacos"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("cookie", [SECRET, b""])
def test_both_versions_and_the_right_cookie_are_let_in(version: str, cookie: bytes) -> None:
    check_hello(Hello(version, cookie, "p", "i"), versions=VERSIONS, cookie=cookie)


@pytest.mark.parametrize("version", ["", "0.0.2", "0.0.1 ", "V0.0.1", "x" * 10_000])
def test_any_other_version_is_refused_and_those_accepted_are_named(version: str) -> None:
    with pytest.raises(NoCommonVersion, match=r"speak 0\.0\.1 or v0\.0\.1") as caught:
        check_hello(Hello(version, SECRET, "p", "i"), versions=VERSIONS, cookie=SECRET)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("shown", "expected"),
    [(b"", SECRET), (SECRET + b"x", SECRET), (b"wrong", SECRET), (SECRET, b""), (b"\xff", SECRET)],
)
def test_a_wrong_cookie_is_refused_and_no_error_repeats_one(shown: bytes, expected: bytes) -> None:
    with pytest.raises(Unauthorized) as caught:
        check_hello(Hello("0.0.1", shown, "p", "i"), versions=VERSIONS, cookie=expected)
    assert SECRET.decode() not in str(caught.value)
    assert "wrong'" not in str(caught.value)


def test_cookies_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[bytes, bytes]] = []

    def compare_digest(shown: bytes, expected: bytes) -> bool:
        asked.append((shown, expected))
        return True

    monkeypatch.setattr(hmac, "compare_digest", compare_digest)
    check_hello(Hello("0.0.1", b"x", "p", "i"), versions=VERSIONS, cookie=SECRET)
    assert asked == [(b"x", SECRET)]


def test_the_other_end_is_told_code_reason_and_remedy() -> None:
    frame = decode(error_frame(CorruptFrame("HELLO: version", remedy="do this"))[PREFIX_BYTES:])
    assert frame == Error("DL4001 HELLO: version (do this)")


def test_an_error_longer_than_a_frame_can_say_is_cut_between_characters() -> None:
    frame = decode(error_frame(CorruptFrame("ä" * 40_000, remedy=""))[PREFIX_BYTES:])
    assert frame == Error("DL4001 " + "ä" * 32_764)
    odd = decode(error_frame(CorruptFrame("x\ud800", remedy=""))[PREFIX_BYTES:])
    assert odd == Error("DL4001 x\\ud800")
