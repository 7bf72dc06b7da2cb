"""Topics: rows that a service has published, read from their files or over HTTP; for programs that are no services.

    from deathless.topics import TopicReader

    reader = TopicReader("/var/lib/airports/topics/departures")
    bounds = reader.bounds()
    for batch in reader.read(bounds.first, bounds.next):
        print(batch.to_pandas())

`RemoteTopic("https://airports.example.org", "departures")` has the same methods, where the files can't be seen.

Guarantees: `read` gives exactly the rows that it was asked for, or raises. Does not: write rows (`drivers.topic` does).
"""

from deathless.topics.reader import TopicReader
from deathless.topics.remote import RemoteTopic
from deathless.topics.row_source import Bounds, RowSource
from deathless.topics.source import TopicSource

__all__ = ["Bounds", "RemoteTopic", "RowSource", "TopicReader", "TopicSource"]
