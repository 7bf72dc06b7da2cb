"""Every sample of docs/testing.md is run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "testing.md"


def test_the_documented_tests_pass(tmp_path: Path) -> None:
    service, *tests = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert "orders = Service(" in service
    (tmp_path / "orders.py").write_text(service)
    text = "\n\n".join(tests)
    (tmp_path / "test_documented.py").write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\naddopts = -p no:cacheprovider -p no:asyncio\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    count = len(re.findall(r"^def test_", text, re.MULTILINE))
    assert count >= 9
    assert f"{count} passed" in done.stdout, done.stdout
