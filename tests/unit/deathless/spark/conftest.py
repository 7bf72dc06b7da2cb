"""Tables of a real PostgreSQL, as tests of sinks have them."""

from tests.unit.deathless.sinks.conftest import schema_of_this_test, server_of_this_module

__all__ = ["schema_of_this_test", "server_of_this_module"]
