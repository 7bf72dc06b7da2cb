"""Every door there is; `test_doors.py` walks them."""

from __future__ import annotations

from tests.conformance.doors_of_answers import ANSWERS, COMMANDS
from tests.conformance.doors_of_applications import APPLICATIONS
from tests.conformance.doors_of_files import FILES, LOG
from tests.conformance.doors_of_ports import PORTS

DOORS = [*FILES, *LOG, *PORTS, *ANSWERS, *COMMANDS, *APPLICATIONS]
