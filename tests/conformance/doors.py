"""Every door there is; `test_doors.py` walks them."""

from __future__ import annotations

from tests.conformance.doors_of_answers import ANSWERS, COMMANDS
from tests.conformance.doors_of_applications import APPLICATIONS
from tests.conformance.doors_of_files import FILES, LOG
from tests.conformance.doors_of_ports import PORTS
from tests.conformance.doors_of_protocols import PROTOCOLS
from tests.conformance.doors_of_sources import SOURCES

DOORS = [*FILES, *LOG, *PORTS, *PROTOCOLS, *ANSWERS, *COMMANDS, *APPLICATIONS, *SOURCES]
