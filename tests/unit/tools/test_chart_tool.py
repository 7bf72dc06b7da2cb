"""What the chart's tool makes of values.yaml: a type, bounds and words for each value."""

from __future__ import annotations

import pytest
from tools import chart

VALUES = """\
# About the file.

# How many there are.
# @schema {"minimum": 1}
replicas: 2

image:
  # Its name | with a bar.
  name: x
  # Labels of nodes.
  # @schema {"open": true}
  resources:
    # Not a value of ours.
    limits: {memory: 1Gi}
"""


def test_values_are_read_with_words_type_and_bounds() -> None:
    found = chart.leaves(chart.read_values(VALUES))
    assert [(".".join(each.path), each.words) for each in found] == [
        ("replicas", "How many there are."),
        ("image.name", "Its name | with a bar."),
        ("image.resources", "Labels of nodes."),
    ]
    assert chart.schema_of(found[0]) == {
        "type": "integer",
        "description": "How many there are.",
        "default": 2,
        "minimum": 1,
    }


def test_open_object_takes_any_key_and_a_closed_one_does_not() -> None:
    image = chart.read_values(VALUES)[1]
    schema = chart.schema_of(image)
    assert schema["additionalProperties"] is False
    properties = schema["properties"]
    assert isinstance(properties, dict)
    assert "additionalProperties" not in properties["resources"]
    assert properties["resources"]["default"] == {"limits": {"memory": "1Gi"}}


def test_table_has_a_row_for_each_value_and_escapes_bars() -> None:
    table = chart.render_table(chart.read_values(VALUES))
    assert '| `image.name` | `"x"` | Its name \\| with a bar. |' in table
    assert len(table.splitlines()) == 5


@pytest.mark.parametrize(
    ("text", "words"),
    [("replicas: 1\n", "replicas has no comment"), ("# Words.\n# @schema {oops}\nreplicas: 1\n", "oops")],
)
def test_value_that_is_not_explained_is_refused(text: str, words: str) -> None:
    with pytest.raises(chart.Undescribed, match=words):
        chart.read_values(text)


def test_table_is_put_between_its_marks_again_and_again() -> None:
    page = f"before\n{chart.BEGIN}\nold\n{chart.END}\nafter\n"
    once = chart.with_table(page, "new")
    assert once == f"before\n{chart.BEGIN}\n\nnew\n\n{chart.END}\nafter\n"
    assert chart.with_table(once, "new") == once


def test_braces_of_a_kind_are_not_taken_for_a_template() -> None:
    head = "# Made.\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: x\n"
    made = chart.render_crd(head + "text: '{{ }}'\n")
    assert "{{ `{{` }} }}" in made
    assert made.count("deathless-crds.metadata") == 1
