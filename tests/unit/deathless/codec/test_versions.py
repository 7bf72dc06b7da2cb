"""Two ends use the highest version that both speak; where there is none, who is older is told."""

from __future__ import annotations

import pytest

from deathless.base.errors import NoCommonVersion
from deathless.codec import versions
from deathless.codec.versions import Versions, agreed, check_welcome, say_hello, spoken
from deathless.codec.wire import Hello


@pytest.mark.parametrize(
    ("theirs", "ours", "version"),
    [((1, 1), (1, 1), 1), ((1, 3), (1, 2), 2), ((2, 3), (1, 2), 2), ((1, 2), (2, 5), 2), ((1, 9), (4, 6), 6)],
)
def test_highest_that_both_speak_is_used_whoever_asks(
    monkeypatch: pytest.MonkeyPatch, theirs: tuple[int, int], ours: tuple[int, int], version: int
) -> None:
    for asks, answers in ((theirs, ours), (ours, theirs)):
        monkeypatch.setattr(versions, "SPOKEN", Versions(*asks))
        hello = say_hello("client", "bank", "c1")
        monkeypatch.setattr(versions, "SPOKEN", Versions(*answers))
        assert agreed(hello) == version
        monkeypatch.setattr(versions, "SPOKEN", Versions(*asks))
        check_welcome(version)


@pytest.mark.parametrize(("ours", "version"), [((1, 1), 1), ((1, 4), 1)])
def test_build_before_ranges_speaks_its_one_version(
    monkeypatch: pytest.MonkeyPatch, ours: tuple[int, int], version: int
) -> None:
    monkeypatch.setattr(versions, "SPOKEN", Versions(*ours))
    assert agreed(Hello(1, "client", "bank", "c1")) == version


@pytest.mark.parametrize(
    ("theirs", "ours", "text"),
    [
        ((1, 2), (3, 4), "client 'c1' speaks protocol version 1 to 2, this replica 3 to 4: it is older"),
        ((5, 5), (3, 4), "client 'c1' speaks protocol version 5, this replica 3 to 4: this replica is older"),
    ],
)
def test_without_a_common_version_who_is_older_is_told(
    monkeypatch: pytest.MonkeyPatch, theirs: tuple[int, int], ours: tuple[int, int], text: str
) -> None:
    monkeypatch.setattr(versions, "SPOKEN", Versions(*ours))
    with pytest.raises(NoCommonVersion, match=text):
        agreed(Hello(theirs[0], "client", "bank", "c1", newest=theirs[1]))


@pytest.mark.parametrize("version", [0, 3])
def test_answer_in_a_version_that_was_not_offered_is_refused(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    monkeypatch.setattr(versions, "SPOKEN", Versions(1, 2))
    with pytest.raises(NoCommonVersion, match=f"protocol version {version}, and version 1 to 2 was offered"):
        check_welcome(version)


def test_fields_of_a_hello_are_kept() -> None:
    hello = say_hello("follower", "bank", "r1", "secret", fingerprint=b"f", session=7)
    assert (hello.version, hello.newest) == spoken()
    assert (hello.kind, hello.token, hello.fingerprint, hello.session) == ("follower", "secret", b"f", 7)
