"""The defaults of the upgrade model are what the design prescribes."""

from deathless.simulation.models.upgrade_rules import (
    FIRST,
    SECOND,
    Check,
    Collection,
    Loading,
    Order,
    Rules,
    Tail,
    Told,
)


def test_defaults_are_the_protocol_of_the_design() -> None:
    rules = Rules()
    assert rules.told is Told.RECORD
    assert rules.tail is Tail.CONFIRMED
    assert rules.order is Order.CHECKPOINT_CUT_HEAD
    assert rules.loading is Loading.ON_CHAIN
    assert rules.check is Check.BEFORE_TAKE
    assert rules.collection is Collection.NEVER
    assert rules.epoch_in_record
    assert rules.fed_by_chain
    assert rules.from_under_lock
    assert rules.number_compared
    assert rules.others_passed_over
    assert rules.head_guarded
    assert rules.proof_sees_upgrader
    assert rules.back_out_is_upgrade


def test_defaults_ask_for_nothing_that_the_record_makes_needless() -> None:
    rules = Rules()
    assert not rules.generation_in_name
    assert not rules.former_code_again
    assert not rules.migration_repeats
    assert rules.generations == (FIRST, SECOND)
