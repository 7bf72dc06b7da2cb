"""A program is started as its manifest says, and another one in its place likewise."""

import msgspec

from deathless.base.config import BindingConfig
from deathless.base.foreign.binding import message_bytes
from deathless.base.limits import Limits
from deathless.foreign.settings import settings_of

BINDING = BindingConfig(command=("./counter",), instance="bank", folder="/bank", environment={"A": "b"}, load_s=3.0)


def test_what_the_manifest_says_counts() -> None:
    """Its limits too."""
    settings = settings_of(BINDING, Limits(), "r1")
    assert (settings.command, settings.purpose, settings.replica) == (("./counter",), "serve", "r1")
    assert (settings.instance, settings.folder, settings.environment) == ("bank", "/bank", {"A": "b"})
    assert (settings.patience.load_s, settings.message_bytes_max) == (3.0, message_bytes(Limits()))


def test_another_program_takes_its_place() -> None:
    """With everything else as it was."""
    settings = settings_of(BINDING, Limits(), "r1", purpose="rehearsal", command=("./counter-2",))
    assert (settings.command, settings.purpose, settings.folder) == (("./counter-2",), "rehearsal", "/bank")


def test_ports_that_are_named_are_those_of_a_program_that_somebody_else_starts() -> None:
    """Another program in its place is told any two: the first may be running."""
    outside = msgspec.structs.replace(BINDING, command=(), receive_port=1000, send_port=1001)
    settings = settings_of(outside, Limits(), "r0")
    assert (settings.command, settings.receive_port, settings.send_port) == ((), 1000, 1001)
    another = settings_of(outside, Limits(), "r0", command=("./counter-2",))
    assert (another.receive_port, another.send_port) == (0, 0)
