"""Seeds recorded because they show a defect: that one is simulated, and no other is looked for while it shows it.

A trace changes with the program, and then a recorded seed may show its defect no longer, though others do.
"""

from collections.abc import Callable

import pytest


def check_recorded(recorded: int, shows: Callable[[int], bool], what: str, *, tried_max: int) -> None:
    """Fail where the recorded seed does not show `what`, and name the first below `tried_max` that does."""
    if not shows(recorded):
        found = next(filter(shows, range(tried_max)), f"none below {tried_max}")
        pytest.fail(f"seed {recorded} does not show {what}; the seed to record: {found}")
