"""Command lines of AMBROSIA's tools: which options there are, and how they are written.

    -i=NAME  -i:NAME  -i NAME  --instanceName=NAME  /instanceName NAME     all the same; case does not count
    -aa  --activeActive  -aa=false                                        a switch

Guarantees: an option that is known is read as the original reads it; one that the original has and we can't honour is
refused by its name; an unknown one is an error, where the original passes over it. Does not: look at anything but
words. Imports base.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from deathless.base.errors import OriginalArgumentRefused


class WrongArguments(Exception):
    """A command line that can't be read; the text says why."""


class Option(NamedTuple):
    """One option of a tool."""

    short: str
    long: str
    help: str
    takes: bool = True  # a value
    refused: str = ""  # what is to be done in its place; empty: it is honoured


INSTANCE: Final = Option("i", "instanceName", "The instance name [REQUIRED].")
RECEIVE: Final = Option("rp", "receivePort", "The port that the coordinator receives from the program at [REQUIRED].")
SEND: Final = Option("sp", "sendPort", "The port that the coordinator sends to the program at [REQUIRED].")
LOG: Final = Option("l", "log", "The folder of the log.")
VERSION: Final = Option("cv", "currentVersion", "The version of the program.")
HELP: Final = Option("h", "help", "Show this message and exit.", takes=False)
ACTIVE: Final = Option("aa", "activeActive", "The instance has several replicas.", takes=False)
REPLICA: Final = Option("r", "replicaNum", "The replica's number.")
REGISTER: Final = (
    INSTANCE,
    RECEIVE,
    SEND,
    LOG,
    Option("cs", "createService", "[A - recover if there is a log, else create | N - recover | Y - create]."),
    Option("ps", "pauseAtStart", "Wait for a line of standard input before the coordinator starts.", takes=False),
    Option(
        "npl", "noPersistLogs", "", takes=False, refused="leave it out: a log that is not kept loses what it was told"
    ),
    Option("lts", "logTriggerSize", "A checkpoint is due after so many MB of calls; 0: only when the program asks."),
    ACTIVE,
    VERSION,
    Option("uv", "upgradeVersion", "The version to upgrade to."),
    HELP,
)
ADD_REPLICA: Final = (*REGISTER, REPLICA)
DEBUG: Final = (
    INSTANCE,
    RECEIVE,
    SEND,
    LOG,
    Option("c", "checkpoint", "The checkpoint to start from."),
    VERSION,
    Option("tu", "testingUpgrade", "Test an upgrade.", takes=False),
    HELP,
)
VERBS: Final[Mapping[str, Sequence[Option]]] = {
    "RegisterInstance": REGISTER,
    "AddReplica": ADD_REPLICA,
    "DebugInstance": DEBUG,
}
_STREAMS: Final = "leave it out; for connections that are encrypted, run the program by a manifest with spec.tls"
COORDINATOR: Final = (
    INSTANCE,
    Option("p", "port", "The port for callers and other instances [REQUIRED]."),
    ACTIVE,
    REPLICA,
    Option("an", "assemblyName", "", refused=_STREAMS),
    Option("ac", "assemblyClass", "", refused=_STREAMS),
    Option("ip", "IPAddr", "The address that the port is bound to; one of this machine's loopback."),
    Option("rp", "receivePort", "The port for the program to connect first, in the place of the registered one."),
    Option("sp", "sendPort", "The port for the program to connect then, in the place of the registered one."),
    LOG,
    Option("lts", "logTriggerSize", "A checkpoint is due after so many MB of calls; 0: only when the program asks."),
    Option("lst", "logStorageType", "The kind of the log's storage: files."),
    HELP,
)
_PREFIXES: Final = ("--", "-", "/")


def parse(words: Sequence[str], options: Sequence[Option]) -> dict[str, str]:
    """Read the words behind a verb.

    Args:
        words: of the command line.
        options: that there are.

    Returns: values by long name; a switch that is on has the value "true", one that is off is left out.

    Raises:
        WrongArguments: an option is unknown, or lacks its value.
        OriginalArgumentRefused: it is one of the original that can't be honoured.
    """
    known = {name.lower(): option for option in options for name in (option.short, option.long)}
    found: dict[str, str] = {}
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        name, value = _split(word)
        option = known.get(name.lower())
        if option is None:
            raise WrongArguments(f"'{word}' is no option")
        if option.refused:
            raise OriginalArgumentRefused(f"--{option.long}", remedy=option.refused)
        if option.takes and value is None:
            if not rest:
                raise WrongArguments(f"Missing required value for option '{word}'.")
            value = rest.pop()
        if not option.takes and value is not None and value.lower() not in {"true", "false"}:
            raise WrongArguments(f"'{word}' takes no value but true and false")
        if option.takes or (value or "true").lower() == "true":
            found[option.long] = value or "true"
    return found


def _split(word: str) -> tuple[str, str | None]:
    """Give an option's name and the value within the same word, if there is one."""
    prefix = next((each for each in _PREFIXES if word.startswith(each)), None)
    if prefix is None:
        raise WrongArguments(f"'{word}' is no option")
    body = word[len(prefix) :]
    ends = [at for sign in "=:" if (at := body.find(sign)) >= 0]
    return (body, None) if not ends else (body[: min(ends)], body[min(ends) + 1 :])


def number(found: Mapping[str, str], option: str, *, least: int, most: int) -> int | None:
    """Give the value of an option as a number; None: it was not given.

    Args:
        found: by `parse`.
        option: its long name.
        least: of the values that are allowed.
        most: likewise.

    Raises: WrongArguments.
    """
    text = found.get(option)
    if text is None:
        return None
    if not text.removeprefix("-").isdecimal() or not text.isascii() or not least <= int(text) <= most:
        raise WrongArguments(f"--{option} is '{text}', and has to be a number from {least} to {most}")
    return int(text)


def required(found: Mapping[str, str], *options: Option) -> None:
    """See that these were given. Raises: WrongArguments naming each that was not."""
    missing = [option.long for option in options if option.long not in found]
    if missing:
        raise WrongArguments(" ".join(f"{name} is required." for name in missing))


def usage(program: str, options: Sequence[Option]) -> str:
    """Give the text that help shows."""
    shown = [option for option in options if not option.refused]
    names = [f"-{each.short}, --{each.long}{'=VALUE' if each.takes else ''}" for each in shown]
    width = max(map(len, names)) + 2
    lines = [f"  {name:<{width}}{each.help}" for name, each in zip(names, shown, strict=True)]
    return "\n".join([f"Usage: {program} [OPTIONS]", "Options:", *lines])
