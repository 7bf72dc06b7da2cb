"""The table of what an error of the storage leads to: whole, of one meaning, and the one that the docs show."""

from __future__ import annotations

import errno
import itertools
import os
import re
from pathlib import Path

import pytest

from deathless.base.errors import DeathlessError, Internal, PermissionRefused, RetryLater
from deathless.base.storage import (
    _OF_A_MOUNT,
    OUTCOMES,
    Outcome,
    Trouble,
    Use,
    code_of,
    storage_error,
    trouble_of,
    waits,
)

PAGE = Path(__file__).parents[4] / "docs/kubernetes/storage.md"
WORDS = {Outcome.WAITS: "waits", Outcome.RESTARTS: "starts again", Outcome.ENDS: "**ends**"}


def error(number: int, path: str | None = "log/x") -> OSError:
    return OSError(number, os.strerror(number), path)


def test_every_use_and_trouble_have_one_outcome() -> None:
    assert set(OUTCOMES) == set(itertools.product(Use, Trouble))


def test_a_number_says_one_thing() -> None:
    numbers = [number for trouble in Trouble for number in trouble.value]
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize("use", list(Use))
def test_nothing_but_a_lack_of_rights_ends_a_replica_for_good(use: Use) -> None:
    assert {trouble for trouble in Trouble if OUTCOMES[use, trouble] is Outcome.ENDS} <= {Trouble.DENIED}


@pytest.mark.parametrize("trouble", list(Trouble))
def test_a_trouble_becomes_an_error_with_the_files_name_that_passes_unless_somebody_must_act(trouble: Trouble) -> None:
    for number in trouble.value:
        ours = storage_error(error(number))
        assert isinstance(ours, DeathlessError)
        assert (ours.code, "log/x" in str(ours)) == (code_of(trouble), True)
        assert isinstance(ours, RetryLater) != isinstance(ours, PermissionRefused)


def test_what_a_socket_says_is_no_trouble_of_the_storage() -> None:
    for number in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN, errno.ECONNABORTED, errno.ETIMEDOUT):
        assert trouble_of(error(number, None)) is None
        assert not waits(error(number, None), Use.HINT)
        assert storage_error(error(number, None)) is None
    assert trouble_of(error(errno.EADDRINUSE)) is None


@pytest.mark.parametrize("number", _OF_A_MOUNT)
def test_a_file_whose_server_is_away_is_storage_that_failed(number: int) -> None:
    assert trouble_of(error(number)) is Trouble.FAILED


def test_the_page_shows_the_table() -> None:
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in PAGE.read_text().splitlines()]
    shown = {row[0]: row[1:] for row in rows if len(row) == 5}
    for use in Use:
        assert shown[use.value] == [WORDS[OUTCOMES[use, trouble]] for trouble in Trouble], use
    codes = next(row for row in rows if row[0] == "becomes")
    assert [re.findall(r"DL\d{4}", cell)[0] for cell in codes[1:]] == [code_of(trouble) for trouble in Trouble]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN])
def test_what_a_process_lacks_says_nothing_of_what_stands_there(number: int) -> None:
    """Whoever looked is not to take it for a file that is damaged."""
    ours = storage_error(error(number))
    assert isinstance(ours, Internal)
    assert "log/x" in str(ours)
    assert storage_error(error(errno.EISDIR)) is None
