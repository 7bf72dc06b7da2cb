"""The page that tells a supervisor which message killed its worker (I11)."""

from deathless.execution.turn.running import PAGE_BYTES, Blame, Cells, Running, read_running


def test_page_names_the_message_being_run() -> None:
    page = bytearray(PAGE_BYTES)
    cells = Cells(page)
    assert read_running(page) is None
    cells.enter(7, 100)
    assert read_running(page) == Running(7, 100)
    cells.cells[2] = 3
    assert read_running(page) == Running(7, 103)
    cells.leave()
    assert read_running(page) is None


def test_next_run_begins_at_its_own_first_message() -> None:
    page = bytearray(PAGE_BYTES)
    cells = Cells(page)
    cells.enter(7, 100)
    cells.cells[2] = 30
    cells.leave()
    cells.enter(8, 5)
    assert read_running(page) == Running(8, 5)


def test_page_may_be_longer_than_its_cells() -> None:
    page = bytearray(64)
    Cells(memoryview(page)).enter(1, 2)
    assert read_running(bytes(page)) == Running(1, 2)


def test_turn_that_a_message_causes_is_held_against_whoever_it_is_of() -> None:
    page = bytearray(PAGE_BYTES)
    blame = Blame(Cells(page))
    blame.begin()
    blame.enter(5, 3, 10, 2)
    named = []
    for invocation in (9, 11, 12):  # in the log; the second message of the run; behind the run
        blame.turn_of(invocation)
        named.append(read_running(page))
        blame.back(10)
    assert named == [Running(0, 9), Running(5, 4), Running(0, 12)]
    assert read_running(page) == Running(5, 3)
