"""The site: every field is on its page, every page in the menu, every link leads somewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tools import docs_links, reference

ROOT = Path(__file__).resolve().parents[3]
SCHEMA: reference.Schema = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "description": "Its name, a | b <c>.", "enum": ["x", "y"]},
        "sizes": {
            "type": "array",
            "description": "Sizes.",
            "maxItems": 3,
            "items": {
                "type": "object",
                "properties": {"size": {"type": "integer", "description": "One.", "minimum": 1}},
            },
        },
    },
}


def test_page_of_fields_is_up_to_date() -> None:
    assert reference.PAGE.read_text() == reference.render()


def test_every_field_has_its_row_with_type_and_bounds() -> None:
    rows = reference.table(SCHEMA, "Thing").splitlines()
    assert rows[2] == '| **`name`** | text, one of `"x"`, `"y"` | Its name, a \\| b &lt;c>. |'
    assert rows[3] == "| `sizes` | list of object, at most 3 entries | Sizes. |"
    assert rows[4] == "| `sizes[].size` | integer, from 1 | One. |"


def test_field_without_words_is_refused() -> None:
    with pytest.raises(reference.Unexplained, match=r"Thing: name"):
        reference.table({"properties": {"name": {"type": "string"}}}, "Thing")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[the file](../../examples/kubernetes/bank.yaml)", "the file"),
        ("[the chart](../../charts/deathless/README.md)", "the chart"),
        ("[design](../design/0005-kubernetes.md)", "design"),
        ("[here](install.md#choices)", "[here](install.md#choices)"),
        ("[gone](../../examples/gone.yaml)", "[gone](../../examples/gone.yaml)"),
        ("[out](https://example.invalid/x)", "[out](https://example.invalid/x)"),
    ],
)
def test_links_that_leave_the_site_become_words_and_broken_ones_stay(text: str, shown: str) -> None:
    assert docs_links.plain(text, "kubernetes/index.md") == shown


def test_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site" / "kubernetes" / "reference" / "index.html").exists()
