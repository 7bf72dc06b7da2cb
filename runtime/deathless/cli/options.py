"""Options that many commands share: which service and shard, JSON, how long to wait."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import click

from deathless.base.errors import InvalidArgument
from deathless.base.shards import SHARDS_MAX

if TYPE_CHECKING:
    from deathless.shell.operate.target import Target

F = TypeVar("F", bound=Callable[..., object])
_SHARD: Final = "deathless.shard"  # in the context's meta: the shard that was named
_INVOCATION: Final = re.compile(r"(?:(0|[1-9][0-9]?)-)?([1-9][0-9]{0,18})")


class ListedGroup(click.Group):
    """A group that lists where none of its commands is named: `deathless peers --json` is `peers list --json`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See click. What a shell asks to be completed stays as it is: a command of the group may come."""
        names_none = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        if names_none and not ctx.resilient_parsing:
            args = ["list", *args]
        return super().parse_args(ctx, args)


def _note_shard(ctx: click.Context, param: click.Parameter | None, shard: int | None) -> None:
    if shard is not None and ctx.meta.setdefault(_SHARD, shard) != shard:
        raise click.BadParameter("another shard than the id names", ctx, param)


class InvocationId(click.ParamType[int]):
    """The id of an invocation, `512`; `1-512` names its shard too."""

    name = "id"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """See click."""
        found = _INVOCATION.fullmatch(str(value))
        if found is None:
            self.fail(f"{value!r} is not an ID; expected 512, or 1-512 for shard 1", param, ctx)
        if found[1] is not None and ctx is not None:
            _note_shard(ctx, param, int(found[1]))
        return int(found[2])


def pod_settings(help_text: str) -> Callable[[F], F]:
    """Give the option -f/--file of a command that runs in a pod; the command gets `path`.

    Args:
        help_text: whose settings these are.
    """
    return click.option(
        "-f",
        "--file",
        "path",
        default="/etc/deathless/replica.json",
        show_default=True,
        metavar="FILE",
        type=click.Path(),
        help=help_text,
    )


def service_options(function: F) -> F:
    """Add -f/--file, --dir and --shard; the command gets `manifest` and `directory`, and `target` minds the rest."""
    function = click.option(
        "--shard",
        type=click.IntRange(0, SHARDS_MAX - 1),
        metavar="K",
        callback=_note_shard,
        expose_value=False,
        help="Which shard, if the service has several.",
    )(function)
    function = click.option(
        "--dir",
        "directory",
        default="",
        metavar="FOLDER",
        type=click.Path(),
        help="The folder the service runs in, instead of a manifest.",
    )(function)
    return click.option(
        "-f", "--file", "manifest", default="service.yaml", show_default=True, envvar="DEATHLESS_MANIFEST",
        metavar="MANIFEST", type=click.Path(), help="The service's manifest.",
    )(function)  # fmt: skip


def json_option(function: F) -> F:
    """Add --json; the command gets `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def timeout_option(default: float) -> Callable[[F], F]:
    """Add --timeout in seconds; the command gets `timeout`."""
    return click.option(
        "--timeout",
        default=default,
        show_default=True,
        type=click.FloatRange(min=0.05),
        metavar="SECONDS",
        help="How long to wait.",
    )


def words_of(option: str, command: str) -> tuple[str, ...]:
    """Give the words of a command that an option names, quoted as for a shell. Raises: InvalidArgument."""
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise InvalidArgument(f"{option} {command}: {error}", remedy="quote it as for a shell") from None


def named_shard() -> int | None:
    """Give the shard that the command line names; None: it names none."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(_SHARD)


def shard_of_it(found: Target) -> dict[str, int]:
    """Give what --json says of the shard, where there are several."""
    return {} if found.config.shards == 1 else {"shard": found.config.shard}


def target(manifest: str, directory: str, *, every: bool = False, silent: bool = False) -> Target:
    """Find the service a command is about, and the shard, or with `every` all shards where none is named.

    Args:
        manifest: its path.
        directory: of the service; empty: the manifest counts.
        every: all shards.
        silent: the command speaks to no replica, and so reads no token.

    Raises: as `find_target`.
    """
    from deathless.shell.operate.target import find_target

    return find_target(manifest, directory, named_shard(), every=every, silent=silent)
