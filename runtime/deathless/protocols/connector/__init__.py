"""The connector protocol of Wallaroo (docs/formats/connector.md): codec, and both ends of sources and of sinks."""
