"""What a place says of a directory, and which one is refused as a copy."""

from __future__ import annotations

import pytest

from deathless.core.access.place import Place, Spot, fits, is_copy

FILE, FOLDER = Spot(7, "1.5"), Spot(8, "1.0")
PLACE = Place("0" * 32, "/srv/job", "m", FILE, FOLDER)


def test_it_fits_where_file_and_folder_are_the_ones_that_it_names() -> None:
    assert fits(PLACE, FILE, FOLDER)
    assert fits(PLACE, Spot(7, ""), FOLDER), "a file system that keeps no births"
    for file, folder in ((Spot(9, "1.5"), FOLDER), (FILE, Spot(9, "1.0")), (Spot(7, "2.0"), FOLDER)):
        assert not fits(PLACE, file, folder)


@pytest.mark.parametrize(
    ("path", "numbered", "copy"),
    [("/srv/copy", True, True), ("/srv/copy", False, False), ("/srv/job", True, False)],
)
def test_what_does_not_fit_is_a_copy_elsewhere_where_inodes_count(path: str, numbered: bool, copy: bool) -> None:
    assert is_copy(PLACE, path, numbered=numbered) is copy
