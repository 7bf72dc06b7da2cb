"""What a manifest says of topics becomes drivers, each with a folder and limits of its own."""

from __future__ import annotations

import msgspec
import pytest

from deathless.base.config import DriverConfig
from deathless.base.errors import TopicNotKept
from deathless.base.topics.settings import (
    Topic,
    check_kept,
    kept_by,
    kept_bytes,
    quantity_bytes,
    readers_of,
    topic_configs,
)

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1", 1),
        ("500k", 500_000),
        ("1.5M", 1_500_000),
        ("0.1Ki", 103),
        ("10Gi", 10 * GIB),
        ("2Ti", 2048 * GIB),
        ("1P", 10**15),
        ("1500m", 2),
    ],
)
def test_sizes_are_read_as_kubernetes_writes_them(text: str, size: int) -> None:
    assert quantity_bytes(text) == size


@pytest.mark.parametrize(
    "entry",
    [{"name": "Sales"}, {"name": "a", "keepBytes": "ten"}, {"name": "a", "keepBytes": "-1"},
     {"name": "a", "keepBytes": "5m"}, {"name": "a", "keepDays": -1}, {"name": "a", "keepBytes": 5},
     {"name": "a", "schema": "x"}, {}],
)  # fmt: skip
def test_what_is_no_topic_is_refused(entry: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(entry, Topic)


def test_each_topic_has_a_driver_with_a_folder_beside_the_log() -> None:
    topics = (Topic(name="sales"), Topic(name="returns", keep_bytes="0", keep_days=30))
    made = topic_configs(topics, "/d/shards/1/")
    assert [(each.name, each.kind, each.batch_messages, each.on_refusal) for each in made] == [
        ("sales", "topic", 4096, "stop"),
        ("returns", "topic", 4096, "stop"),
    ]
    assert [each.options for each in made] == [
        {"directory": "/d/shards/1/topics/sales", "keepBytes": 10 * GIB, "keepSeconds": 0},
        {"directory": "/d/shards/1/topics/returns", "keepBytes": 0, "keepSeconds": 30 * 86_400},
    ]
    named = topic_configs([Topic(name="sales", readers=("reports", "*"))], "/d")
    assert named[0].options["readers"] == ["reports", "*"]
    assert readers_of((*made[1:], *named, DriverConfig(name="mail", kind="webhook"))) == {
        "returns": frozenset(),
        "sales": {"reports", "*"},
    }
    assert kept_by((*made, DriverConfig(name="mail", kind="webhook"))) == {"sales": 10 * GIB, "returns": 0}
    assert kept_bytes(topics, 3) == 30 * GIB


def test_code_whose_topics_nobody_keeps_is_refused_with_what_to_write() -> None:
    drivers = (
        *topic_configs((Topic(name="sales"), Topic(name="unused")), "/d"),
        DriverConfig(name="mail", kind="files"),
    )
    check_kept(["sales"], drivers)
    check_kept([], ())
    with pytest.raises(TopicNotKept, match="the code declares topic returns, which the manifest") as caught:
        check_kept(["sales", "returns"], drivers)
    assert "add `topics: [{name: returns}]` to its spec" in str(caught.value)
    with pytest.raises(TopicNotKept, match=r"topics mail, sales, .*topics: \[\{name: mail\}, \{name: sales\}\]"):
        check_kept(["sales", "mail"], drivers[-1:])
