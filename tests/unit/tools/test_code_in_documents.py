"""Services that the documents show are services, and the checks find nothing in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.tools.commands import PAGES, ROOT

from deathless.shell.service_code.check.run import check_service


def services() -> list[tuple[str, str]]:
    """Return (page, code) of every block of Python that makes a service."""
    found = []
    for path in PAGES:
        blocks = re.findall(r"^```python\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
        found += [(str(path.relative_to(ROOT)), block) for block in blocks if "= Service(" in block]
    return found


def test_services_are_found() -> None:
    assert {page for page, _ in services()} >= {"README.md", "docs/kubernetes/first-service.md"}


@pytest.mark.parametrize(("page", "block"), services())
def test_service_of_a_page_passes_the_checks(page: str, block: str, tmp_path: Path) -> None:
    name = re.search(r"^(\w+) = Service\(", block, re.MULTILINE)
    assert name is not None
    (tmp_path / "shown.py").write_text(block)
    report = check_service(f"shown.py:{name[1]}", folder=tmp_path)
    assert report.clean, page
