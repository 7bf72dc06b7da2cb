"""The defaults of the model of foreign applications are what the design prescribes."""

from deathless.simulation.models.foreign_rules import Application, Impulse, Rules, Successor, Welcome, Witness


def test_defaults_are_the_rules_of_the_design() -> None:
    rules = Rules()
    assert rules.witness is Witness.BEFORE_FIRST_BYTE
    assert rules.welcome is Welcome.ALL_ADMITTED
    assert rules.application is Application.SAME
    assert rules.impulse is Impulse.NONE
    assert rules.successor is Successor.STANDBY
    assert rules.deliver_confirmed
    assert rules.count_at_message
    assert rules.output_in_checkpoint
    assert rules.fences
    assert rules.waits_behind
    assert rules.trim_has_chain
