"""Steps of the model of foreign applications; what it shows stands in tests/models/test_foreign.py."""

from deathless.simulation.models.foreign_model import ForeignModel, Process, State, Status, Trim, Violation
from deathless.simulation.models.foreign_rules import Application, Impulse, Rules, Welcome, Witness


def labels(model: ForeignModel, state: State) -> set[str]:
    return {label for label, _ in model.steps(state)}


def after(model: ForeignModel, *wanted: str) -> State:
    state = model.initial()
    for label in wanted:
        [state] = [found for name, found in model.steps(state) if name == label]
    return state


GIVEN = ("A writes input 1", "A proves", "A handles entry 1", "A sends o1 at 1", "R confirms")


def test_an_input_is_handled_once_it_is_proved_and_its_output_sent_once() -> None:
    model = ForeignModel(Rules(inputs=1))
    written = after(model, GIVEN[0])
    assert "A handles entry 1" not in labels(model, written)
    sent = after(model, *GIVEN[:4])
    assert sent.receiver.logged == ("o1",)
    assert labels(model, sent) == {"R confirms", "A is dead", "A is deposed, and does not know", "S handles entry 1"}


def test_a_confirmation_is_logged_and_known_once_it_is_proved() -> None:
    model = ForeignModel(Rules(inputs=1))
    state = after(model, *GIVEN, "A logs a trim")
    assert state.log[-1] == Trim(("o1",)) and state.first.trimmed == ()
    assert after(model, *GIVEN, "A logs a trim", "A proves").first.trimmed == ("o1",)


def test_what_a_deposed_process_writes_is_seen_by_nobody() -> None:
    model = ForeignModel(Rules(inputs=1))
    state = after(model, "A is deposed, and does not know", "A writes input 1")
    assert (state.log, state.first.log) == ((), ("1",))
    ended = after(model, "A is deposed, and does not know", "A writes input 1", "A looks, and finds itself deposed")
    assert ended.first.status is Status.ENDED


def test_a_receiver_answers_once_all_that_it_admitted_is_confirmed() -> None:
    over = (*GIVEN[:4], "A is dead", "S takes over")
    patient, hasty = ForeignModel(Rules()), ForeignModel(Rules(welcome=Welcome.CONFIRMED))
    assert "S connects to R" not in labels(patient, after(patient, *over))
    assert after(hasty, *over, "S connects to R").successor.told == ()


def test_a_successor_that_emits_something_else_stops_unless_nothing_is_compared() -> None:
    steps = (*GIVEN, "A is dead", "S takes over", "S connects to R", "S handles entry 1")
    strict = ForeignModel(Rules(application=Application.CLOCK))
    loose = ForeignModel(Rules(application=Application.CLOCK, witness=Witness.NEVER))
    assert after(strict, *steps).successor.status is Status.STOPPED
    assert after(loose, *steps).successor.status is Status.LEADS


def test_impulses_are_logged_or_counted_by_the_rules() -> None:
    logged = ForeignModel(Rules(impulse=Impulse.LOGGED_FIRST))
    state = after(logged, "A logs an impulse", "A proves", "A sends the impulse")
    assert (state.receiver.impulses, state.receiver.logged) == (1, ())
    counted = ForeignModel(Rules(impulse=Impulse.IN_ONE_COUNT))
    assert after(counted, "A emits an impulse", "A sends J at 1").receiver.logged == ("J",)


def test_faults_are_told_by_what_the_receiver_has() -> None:
    model = ForeignModel(Rules())
    state = after(model, *GIVEN)
    assert model.fault(state) == ""
    mixed = state._replace(receiver=state.receiver._replace(logged=("o2",)))
    assert model.fault(mixed).startswith(Violation.DIFFERS)
    early = state._replace(receiver=state.receiver._replace(impulses=1))
    assert model.fault(early) == f"{Violation.DIFFERS}: an impulse that is not logged"
    stopped = state._replace(first=state.first._replace(status=Status.ENDED), successor=Process("S", Status.STOPPED))
    assert model.fault(stopped).startswith(Violation.STALL)
