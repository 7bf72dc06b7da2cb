"""Errors of applications in other languages; `errors` draws the whole tree, and everybody imports them from there.

Imports the kinds of errors.
"""

from __future__ import annotations

from deathless.base.error_tree.kinds import DataCorrupt, Invalid


class ApplicationNotStarted(Invalid):
    """The command of an application can't be run."""

    code = "DL3100"
    exit_code = 78
    remedy = "name a program that this user may run, and its folder"


class ApplicationNotConnected(Invalid):
    """An application did not connect its two ports in time."""

    code = "DL3101"
    remedy = (
        "connect 127.0.0.1 at DEATHLESS_RECEIVE_PORT, then at DEATHLESS_SEND_PORT, once each; "
        "a program that starts slowly needs a longer limit"
    )


class ApplicationStalled(Invalid):
    """An application stood still for longer than it may, and was ended."""

    code = "DL3102"
    remedy = "read the send port always, and give a checkpoint when asked for one; a long handler needs a longer limit"


class ApplicationEnded(Invalid):
    """An application ended by itself: its process, or one of its connections."""

    code = "DL3103"
    remedy = "read what it printed; it starts again from its last checkpoint and the log"


class OriginalArgumentRefused(Invalid):
    """An argument of AMBROSIA's tools asks for what there is not here."""

    code = "DL3105"
    remedy = "leave it out"


class InstanceNotRegistered(Invalid):
    """A coordinator was started for an instance, or a replica of one, that was not registered."""

    code = "DL3106"
    exit_code = 78
    remedy = (
        "run `Ambrosia RegisterInstance`, from the same folder of launchers, and `Ambrosia AddReplica` for a replica"
    )


class InstanceThere(Invalid):
    """An instance is to be created, and there is a log of it; or it is to be recovered, and there is none."""

    code = "DL3107"
    remedy = "register it with -cs=A, which recovers what is there and else creates it"


class ProgramNotRepeated(Invalid):
    """The former program does not emit again what the log has of it, so its state for another one is not known."""

    code = "DL3110"
    remedy = "name the program that ran last: --former 'COMMAND'; `deathless ambrosia replay` shows what differs"


class ProgramClaimed(Invalid):
    """The programs of a service are claimed: by replicas that run them, or by an upgrade."""

    code = "DL3111"
    remedy = "an upgrade needs all replicas stopped (`deathless down`); replicas start once the upgrade has ended"


class ProgramVersionDiffers(Invalid):
    """A program of one version was started, and the service's state is of another one."""

    code = "DL3150"
    exit_code = 78
    remedy = "register the instance with --currentVersion as its state has it"

    @classmethod
    def between(cls, expected: int, was: int, what: str = "") -> ProgramVersionDiffers:
        """Make one.

        Args:
            expected: the version that was asked for.
            was: the version that there is.
            what: has that version; empty: the newest checkpoint.
        """
        told = f"Version mismatch on process start: Expected {expected} was: {was}"
        return cls(f"{told}; {what or 'the newest checkpoint'} is of version {was}")


class ApplicationStateMissing(DataCorrupt):
    """The log has been run by an application, and no checkpoint of it is there to go on from, or one of another log."""

    code = "DL4020"
    remedy = "bring back the folder `application` of the service's directory, as it was beside this log"


class LaneUnknown(Invalid):
    """A row of an application's outputs was refused, so it is not known what it emitted up to there."""

    code = "DL3115"
    remedy = "look at the primary's log for what refused it; this is a bug of Deathless, please report it"


class TargetNotReached(Invalid):
    """A program calls a service that its own service may not send to: as many others are known to it as may be."""

    code = "DL3122"
    remedy = "raise spec.limits.targetsMax of the program's service; what is kept leaves once its replicas have it"
