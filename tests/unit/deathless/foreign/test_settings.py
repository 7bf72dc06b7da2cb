"""A program is started as its manifest says, and another one in its place likewise."""

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
