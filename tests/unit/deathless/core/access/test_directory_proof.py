"""What is shown of a secret, and who may connect without."""

from __future__ import annotations

import pytest

from deathless.base.errors import OtherDirectory, TooLarge
from deathless.codec.wire import PREFIX_BYTES, Hello, Type
from deathless.core.access.directory_proof import (
    KEPT_BYTES_MAX,
    REPLICAS,
    BeforeProof,
    agrees,
    answer_of,
    answerer_shows,
    asker_shows,
    check_answer,
    is_file_name,
    is_word,
    refusal_without_word,
)

WORD, NONCE, SECRET = "0f" * 16, bytes(16), b"s" * 64


def test_each_side_shows_something_of_its_own_for_each_secret_word_and_nonce() -> None:
    shown = [
        side(secret, word, nonce)
        for side in (answerer_shows, asker_shows)
        for secret in (SECRET, b"t" * 64)
        for word in (WORD, "1f" * 16)
        for nonce in (NONCE, bytes(15) + b"1")
    ]
    assert len(set(shown)) == len(shown) == 16
    assert agrees(shown[0], answerer_shows(SECRET, WORD, NONCE))
    assert not agrees(shown[0], shown[1])
    assert not agrees(b"", shown[0])


def test_words_and_names_of_files_have_one_form() -> None:
    assert is_word(WORD)
    assert is_file_name(f".proof.{WORD}")
    for other in ("", WORD[1:], WORD + "0", WORD.upper(), f"{WORD}\n", f"../{WORD}"):
        assert not is_word(other)
        assert not is_file_name(f".proof.{other}")
    assert not is_file_name("r0.json")


@pytest.mark.parametrize("kind", ["supervisor", "follower", "tool"])
@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize("shows", [True, False])
def test_replicas_of_earlier_builds_alone_show_nothing(kind: str, announced: bool, shows: bool) -> None:
    refusal = refusal_without_word(kind, "r1", announced=announced, shows=shows)
    assert (refusal is None) == (kind in REPLICAS and announced and not shows)
    assert refusal is None or "r1" in refusal.message


def test_an_asker_shows_nothing_to_who_knows_another_secret_or_none() -> None:
    told = answerer_shows(SECRET, WORD, NONCE)
    assert answer_of(SECRET, WORD, NONCE, told) == asker_shows(SECRET, WORD, NONCE)
    for secret in (None, b"t" * 64):
        assert answer_of(secret, WORD, NONCE, told) is None


def test_an_answerer_lets_nobody_in_who_shows_another_secret_or_too_early() -> None:
    hello = Hello(1, "follower", "bank", "r1", proof=WORD)
    check_answer(hello, SECRET, NONCE, asker_shows(SECRET, WORD, NONCE))
    for secret, shown in ((SECRET, b""), (SECRET, asker_shows(b"t" * 64, WORD, NONCE)), (None, b"")):
        with pytest.raises(OtherDirectory, match="follower 'r1'"):
            check_answer(hello, secret, NONCE, shown)


def test_what_comes_before_the_proof_is_kept_in_order_and_given_once() -> None:
    before = BeforeProof()
    assert before.keep([(Type.PING, b"1")]) is None
    assert before.keep([(Type.PING, b"2"), (Type.PROOF, b"shown"), (Type.PING, b"3")]) == (
        b"shown",
        [(Type.PING, b"3")],
    )
    assert before.release() == [(Type.PING, b"1"), (Type.PING, b"2")]
    assert before.release() == []


@pytest.mark.parametrize("body", [b"", bytes(1000)], ids=["empty packets", "long ones"])
def test_only_so_much_is_kept_before_the_proof(body: bytes) -> None:
    before = BeforeProof()
    fits = KEPT_BYTES_MAX // (PREFIX_BYTES + len(body))
    assert before.keep([(Type.PING, body)] * fits) is None
    with pytest.raises(TooLarge, match=str(KEPT_BYTES_MAX)):
        before.keep([(Type.PING, body)])
