"""Findings are counted by kind and handler, and told in one line each."""

from __future__ import annotations

from deathless.execution.rehearsal.findings import ASPECTS, SHOWN_CHARS, Difference, Findings, merged


def difference(lsn: int = 1, kind: str = "ReplyDiffers", declared: str = "") -> Difference:
    return Difference(kind, "deposit", lsn, "alice", "1", "2", declared=declared)


def test_one_kind_of_one_handler_is_one_finding_with_the_first_of_it() -> None:
    findings = Findings()
    for lsn in (5, 6, 7):
        findings.add(difference(lsn))
    findings.add(difference(8, "StateDiffers"))
    findings.add(difference(9, declared="another fee"))
    assert [(each.kind, each.lsn, each.count) for each in findings.differences()] == [
        ("ReplyDiffers", 5, 3),
        ("StateDiffers", 8, 1),
        ("ReplyDiffers", 9, 1),
    ]


def test_findings_of_several_shards_are_counted_together_and_stay_as_they_are() -> None:
    one, other = [difference(5)], [difference(2), difference(3, "Raised")]
    assert [(each.kind, each.lsn, each.count) for each in merged((one, other))] == [
        ("ReplyDiffers", 5, 2),
        ("Raised", 3, 1),
    ]
    assert one[0].count == 1


def test_a_finding_is_one_line_with_values_that_are_cut() -> None:
    assert difference(1234).text == "ReplyDiffers: deposit (it is lsn 1,234, key alice): expected 1, found 2"
    findings = Findings()
    findings.add(Difference("StateDiffers", "", 0, "", "x" * 1000, "y"))
    findings.add(Difference("StateDiffers", "", 0))
    [found] = findings.differences()
    assert len(found.expected) == SHOWN_CHARS
    assert found.text.startswith("StateDiffers: (no handler) (2 times, the first is the end): expected xxx")
    assert Difference("NotDeterministic", "tag", 3).text == "NotDeterministic: tag (it is lsn 3)"


def test_every_kind_but_what_no_one_can_mean_is_an_aspect() -> None:
    assert set(ASPECTS.values()) == {"reply", "calls", "state"}
