"""Whom a client dials next: everybody in turn, pauses that are capped, hints that can't chase it to and fro."""

from __future__ import annotations

from deathless.core.client.candidates import Candidates
from deathless.core.client.link import BACKOFF_MAX_S, GREET_MAX_S, GREET_S, WAITING_S


def candidates(*addresses: str, jitter: float = 0.0) -> Candidates:
    made = Candidates(lambda: jitter)
    made.found(addresses, 0.0)
    return made


def test_each_has_its_turn() -> None:
    made = candidates("a", "b", "c")
    assert [made.next("", suspected=False) for _ in range(4)] == ["a", "b", "c", "a"]


def test_replica_at_hand_is_left_out_but_for_every_fourth_round() -> None:
    made = candidates("a", "b")
    assert [made.next("a", suspected=False) for _ in range(3)] == ["b", "b", "b"]
    asked = []
    for _ in range(8):
        made.missed(0.0, at_hand=True, whole_round=True)
        asked.append({made.next("a", suspected=False), made.next("a", suspected=False)})
    assert sum("a" in round_ for round_ in asked) == 2


def test_silent_replica_is_dialed_anew_in_every_second_round() -> None:
    made = candidates("a")
    asked = []
    for _ in range(6):
        asked.append(made.next("a", suspected=True))
        made.missed(0.0, at_hand=True, whole_round=True)
    assert asked == ["", "a", "", "a", "", "a"]


def test_who_did_not_answer_is_asked_last_in_each_round_until_it_greets() -> None:
    made = candidates("a", "b", "c")
    made.unanswered("a")
    made.lost("b")
    rounds = []
    for _ in range(2):
        rounds.append([made.next("", suspected=False) for _ in range(3)])
        made.missed(0.0, at_hand=False, whole_round=True)
    assert rounds == [["c", "a", "b"], ["c", "a", "b"]]
    made.welcomed("a")
    assert made.next("", suspected=False) == "c"
    assert made.next("", suspected=False) == "a"


def test_silent_replica_is_dialed_anew_also_where_everybody_was_silent() -> None:
    made = candidates("a", "b", "c")
    rounds: list[list[str]] = [[]]
    for address in ("a", "b", "c"):
        made.unanswered(address)
    while len(rounds) < 5:
        rounds[-1].append(made.next("a", suspected=True))
        if made.missed(0.0, at_hand=True):
            rounds.append([])
    assert rounds[:4] == [["b", "c"], ["b", "c", "a"], ["b", "c"], ["b", "c", "a"]]


def test_who_is_asked_last_is_asked_though_rounds_are_cut_short() -> None:
    made = candidates("a", "b", "c")
    made.unanswered("a")
    asked = []
    for _ in range(3):
        asked.append(made.next("", suspected=False))
        made.begin(0.0)
    assert asked == ["b", "c", "a"]


def test_pauses_are_longer_while_a_replica_waits_with_us() -> None:
    made = candidates("a", "b")
    assert made.missed(5.0, at_hand=True, waiting=True, whole_round=True)
    assert made.dial_at == 5.0 + WAITING_S / 2


def test_address_of_a_former_primary_is_forgotten_with_the_next_one() -> None:
    made = candidates("a")
    made.hint(1, "z", 0.0)
    assert "z" in made.known
    made.leads("a")
    assert "z" not in made.known


def test_that_nobody_is_found_is_no_news() -> None:
    made = candidates("a")
    made.found((), 1.0)
    assert made.known == ("a",)


def test_pauses_come_after_a_round_and_are_capped_and_jittered() -> None:
    for jitter, low in ((0.0, 0.5), (0.999, 0.99)):
        made = candidates("a", "b", jitter=jitter)
        pauses = []
        for _ in range(60):
            made.next("", suspected=False)
            if made.missed(10.0, at_hand=False):
                pauses.append(made.dial_at - 10.0)
            else:
                assert made.dial_at == 10.0
        assert len(pauses) == 30
        assert pauses == sorted(pauses)
        assert low * BACKOFF_MAX_S <= pauses[-1] <= BACKOFF_MAX_S


def test_success_makes_pauses_small_again() -> None:
    made = candidates("a")
    for _ in range(20):
        made.missed(0.0, at_hand=False, whole_round=True)
    made.succeeded()
    made.missed(0.0, at_hand=False, whole_round=True)
    assert made.dial_at < 0.01


def test_hint_goes_first_and_a_newer_one_at_once() -> None:
    made = candidates("a", "b")
    made.missed(0.0, at_hand=False, whole_round=True)
    assert made.hint(3, "z", 0.0)
    assert made.dial_at == 0.0
    assert made.next("", suspected=False) == "z"
    assert made.known == ("a", "b", "z")


def test_hints_of_the_same_or_an_older_epoch_do_not_hurry_us() -> None:
    made = candidates("a", "b")
    assert made.hint(3, "b", 0.0)
    made.missed(5.0, at_hand=False, whole_round=True)
    due = made.dial_at
    assert not made.hint(3, "b", 5.0)
    assert not made.hint(3, "a", 5.0)
    assert not made.hint(2, "z", 5.0)
    assert made.dial_at == due
    assert made.next("", suspected=False) == "a", "the same epoch's other hint is next in turn"


def test_dropped_hint_is_not_dialed() -> None:
    made = candidates("a")
    made.hint(1, "z", 0.0)
    made.drop_hint()
    assert made.next("", suspected=False) == "a"


def test_greet_limit_doubles_while_nobody_answers() -> None:
    made = candidates("a")
    assert made.greet_limit_s == GREET_S
    for _ in range(30):
        made.unanswered("a")
    assert made.greet_limit_s == GREET_MAX_S
    made.welcomed("a")
    assert made.greet_limit_s == GREET_S


def test_refusal_is_told_only_when_all_refuse() -> None:
    made = candidates("a", "b")
    assert candidates().refusal() is None
    made.refused("a", "DL3010", "token")
    assert made.refusal() is None
    made.refused("b", "DL3010", "token")
    assert made.refusal() == ("DL3010", "token")
    made.welcomed("a")
    assert made.refusal() is None


def test_refusals_of_replicas_that_left_are_forgotten() -> None:
    made = candidates("a", "b")
    made.refused("a", "DL3010", "token")
    made.found(("b",), 1.0)
    made.refused("b", "DL3005", "service")
    made.found(("b", "a"), 2.0)
    assert made.refusal() is None


def test_new_addresses_are_asked_at_once_and_known_ones_are_no_news() -> None:
    made = candidates("a")
    made.missed(0.0, at_hand=False, whole_round=True)
    due = made.dial_at
    made.found(("a",), 0.0)
    assert made.dial_at == due
    made.found(("a", "b"), 7.0)
    assert made.dial_at == 7.0
