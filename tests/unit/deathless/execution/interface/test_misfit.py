"""How a misfit is told, and how equal ones are counted as one."""

from __future__ import annotations

from deathless.execution.interface.misfit import Misfit, Tally, merged

DROPPED = Misfit(
    "FieldDropped",
    "Account.balance",
    "Account.balance (float) of version 1 is not in version 2",
    'write @bank.migrate(from_=1), or drops=["Account.balance"]',
)


def test_one_line_says_what_where_how_many_and_what_to_do() -> None:
    counted = merged([DROPPED], [Misfit("FieldDropped", "Account.balance", "as found", "", 48_211)])
    assert [each.text for each in counted] == [
        (
            "FieldDropped: Account.balance (float) of version 1 is not in version 2, 48,211 keys hold it; "
            'write @bank.migrate(from_=1), or drops=["Account.balance"]'
        )
    ]
    raised = Misfit("MigrationRaised", "up", "key carol: ValueError: no", "see to it", 1, "key", 1_000_000, "carol")
    assert raised.text == "MigrationRaised: key carol: ValueError: no, 1 of 1,000,000 keys (it is carol); see to it"
    assert Misfit("HandlerGone", "bonus", "it is gone", "", 2, "message", 0, "lsn 14").text == (
        "HandlerGone: it is gone, 2 messages wait (the first is lsn 14)"
    )
    assert DROPPED.text.count(", ") == 1


def test_equal_finds_are_one_with_the_first_that_was_met() -> None:
    tally = Tally()
    for key in ("alice", "bob"):
        tally.add("FieldDropped", "Account.note", f"of {key}", "", key)
    tally.add("FieldDropped", "Account.other", "", "", "bob")
    other = Tally()
    other.extend(tally.misfits())
    other.extend(tally.misfits())
    assert [(each.subject, each.count, each.first, each.what) for each in other.misfits()] == [
        ("Account.note", 4, "alice", "of alice"), ("Account.other", 2, "bob", ""),
    ]  # fmt: skip
    assert {each.of for each in tally.misfits(7)} == {7}


def test_what_types_did_not_tell_comes_behind() -> None:
    found = Misfit("MigrationRaised", "up", "key bob: no")
    assert merged([DROPPED], [found]) == [DROPPED, found]
