"""`Ambrosia`: registers instances and their replicas, and runs their logs again.

    Ambrosia RegisterInstance -i=counter -rp=1000 -sp=1001 -l=logs/
    Ambrosia AddReplica -r=1 -i=counter -rp=2000 -sp=2001 -l=logs/          (kept when the instance is registered again)
    Ambrosia DebugInstance -i=counter -rp=1000 -sp=1001 -l=logs/ -c=1        (`debugging`)

Guarantees: exit code 0 and one line when it is done; 1 and the reason otherwise; an argument that can't be honoured is
refused by name, and nothing is written then. Does not: touch a log. Imports this folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from deathless.base.errors import DeathlessError, InstanceNotRegistered, InvalidConfig, OriginalArgumentRefused
from deathless.cli.ambrosia.arguments import (
    INSTANCE,
    RECEIVE,
    REPLICA,
    SEND,
    VERBS,
    WrongArguments,
    number,
    parse,
    required,
    usage,
)
from deathless.cli.ambrosia.registrations import LOG_TRIGGER_MB, Registration, Replica, register, registration_of
from deathless.cli.output import show_error
from deathless.execution.author.instance_names import is_instance_name

NAME: Final = "Ambrosia"
LOGS: Final = "AmbrosiaLogs"  # beside the launchers, where no folder is named
PORT_MAX: Final = 65_535
VERSION_MAX: Final = (1 << 63) - 1
MB_MAX: Final = 1 << 20
REPLICA_MAX: Final = 99
CREATE: Final = ("A", "N", "Y")


def main(home: Path, words: Sequence[str]) -> int:
    """Carry out a command line; gives the exit code.

    Args:
        home: folder of the launchers.
        words: behind the program's name.
    """
    verb = next((each for each in VERBS if words and each.lower() == words[0].lower()), None)
    if verb is None:
        print(f"Usage: {NAME} {' | '.join(VERBS)} [OPTIONS]")
        return 0 if words and words[0].lstrip("-/").lower() in {"h", "help"} else 1
    options = VERBS[verb]
    try:
        found = parse(words[1:], options)
        if "help" in found:
            print(usage(f"{NAME} {verb}", options))
            return 0
        if verb == "DebugInstance":
            return _debug(home, found)
        print(_carry_out(home, verb, found))
    except WrongArguments as wrong:
        print(f"Invalid arguments: {wrong}\n{usage(f'{NAME} {verb}', options)}")
        return 1
    except DeathlessError as error:
        show_error(error)
        return 1
    return 0


def _carry_out(home: Path, verb: str, found: Mapping[str, str]) -> str:
    """Carry out a verb; gives what is told."""
    required(found, INSTANCE, RECEIVE, SEND)
    registration = registration_from(home, found)
    if verb == "RegisterInstance":
        register(home, _with_replicas(home, registration))
        return f"The instance {registration.instance} is registered."
    if registration.upgrade_version > registration.version:
        raise OriginalArgumentRefused(
            f"--upgradeVersion={registration.upgrade_version}: no replica is upgraded while others run",
            remedy="stop all of them, register the instance with it, start one, and add replicas of the next version",
        )
    required(found, REPLICA)
    replica = number(found, REPLICA.long, least=1, most=REPLICA_MAX)
    assert replica is not None
    there = registration_of(home, registration.instance)
    if "log" in found and registration.log != there.log:
        raise OriginalArgumentRefused(
            f"--log: replicas of one instance share its log, which is in {there.log}", remedy="name that folder"
        )
    added = {**there.replicas, replica: registration.replicas[0]}
    register(home, msgspec.structs.replace(there, replicas=added))
    return f"Replica {replica} of the instance {there.instance} is registered."


def _with_replicas(home: Path, registration: Registration) -> Registration:
    """Give a registration with the replicas that were added to the one before, which share its log."""
    try:
        there = registration_of(home, registration.instance)
    except (InstanceNotRegistered, InvalidConfig):
        return registration
    if there.log != registration.log:
        return registration
    return msgspec.structs.replace(registration, replicas={**there.replicas, **registration.replicas})


def _debug(home: Path, found: Mapping[str, str]) -> int:
    """Run a log again; gives the exit code. Raises: WrongArguments, InvalidConfig."""
    from deathless.cli.ambrosia.debugging import debug_instance

    required(found, INSTANCE, RECEIVE, SEND)
    return debug_instance(
        instance=_instance(found),
        ports=_ports(found),
        log=_log(home, found),
        checkpoint=number(found, "checkpoint", least=1, most=VERSION_MAX) or 1,
        version=number(found, "currentVersion", least=0, most=VERSION_MAX) or 0,
        testing_upgrade="testingUpgrade" in found,
    )


def _instance(found: Mapping[str, str]) -> str:
    """Give the instance's name. Raises: WrongArguments: none can have it."""
    if not is_instance_name(found[INSTANCE.long]):
        raise WrongArguments(
            f"--{INSTANCE.long} is '{found[INSTANCE.long]}', and has to be letters and digits, 3 to 63, a letter first"
        )
    return found[INSTANCE.long]


def _ports(found: Mapping[str, str]) -> Replica:
    """Give the program's ports. Raises: WrongArguments."""
    receive = number(found, RECEIVE.long, least=1, most=PORT_MAX)
    send = number(found, SEND.long, least=1, most=PORT_MAX)
    assert receive is not None
    assert send is not None
    return Replica(receive_port=receive, send_port=send)


def _log(home: Path, found: Mapping[str, str]) -> str:
    """Give the folder of the log, absolute."""
    return str(Path(found.get("log") or home / LOGS).absolute())


def registration_from(home: Path, found: Mapping[str, str]) -> Registration:
    """Make a registration of arguments; what is not given is as by default.

    Args:
        home: folder of the launchers.
        found: values by long name.

    Raises: WrongArguments, OriginalArgumentRefused.
    """
    instance, ports = _instance(found), _ports(found)
    create = found.get("createService", "A").upper()
    if create not in CREATE:
        raise WrongArguments(f"--createService is '{create}', and has to be one of {', '.join(CREATE)}")
    version = number(found, "currentVersion", least=0, most=VERSION_MAX) or 0
    upgrade = number(found, "upgradeVersion", least=0, most=VERSION_MAX)
    if upgrade is not None and upgrade < version:
        raise WrongArguments(f"--upgradeVersion is {upgrade}, and has to be at least --currentVersion, {version}")
    trigger = number(found, "logTriggerSize", least=-MB_MAX, most=MB_MAX)
    return Registration(
        instance=instance,
        log=_log(home, found),
        replicas={0: ports},
        create_service=create,
        pause_at_start="pauseAtStart" in found,
        log_trigger_mb=LOG_TRIGGER_MB if trigger is None else trigger,
        version=version,
        upgrade_version=version if upgrade is None else upgrade,
    )
