"""ClickHouse as a store of sinks: no transaction holds rows and tip together, so a block is planned first."""
