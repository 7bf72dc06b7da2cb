"""Topics: rows that a service has published, read from their files; for programs that are no services.

    from deathless.topics import TopicReader

    reader = TopicReader("/var/lib/airports/topics/departures")
    bounds = reader.bounds()
    for batch in reader.read(bounds.first, bounds.next):
        print(batch.to_pandas())

Guarantees: `read` gives exactly the rows that it was asked for, or raises. Does not: write rows (`drivers.topic` does).
"""

from deathless.topics.reader import Bounds, TopicReader
from deathless.topics.source import TopicSource

__all__ = ["Bounds", "TopicReader", "TopicSource"]
