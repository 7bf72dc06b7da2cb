"""What is told of a topic has the names that commands tell."""

from __future__ import annotations

import msgspec

from deathless.base.topics.state import TopicState


def test_a_topic_that_nothing_was_published_to_begins_with_1() -> None:
    told = msgspec.json.decode(msgspec.json.encode(TopicState(topic="sales", shard=2)))
    assert told == {
        "topic": "sales", "shard": 2, "source": "", "floor": 1, "first": 1, "next": 1, "columns": "", "files": 0,
        "bytes": 0, "timeUs": 0,
    }  # fmt: skip
