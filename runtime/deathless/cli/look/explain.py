"""`deathless explain`: the page of an error code, without a network."""

from __future__ import annotations

import difflib
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from deathless.cli.options import json_option
from deathless.cli.output import console, is_terminal, print_json, print_table

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

PACKAGE: Final = "deathless"
INSTALLED: Final = "error_pages"  # a folder of the package in a wheel; see `force-include` of pyproject.toml
CHECKED_OUT: Final = Path("docs", "errors")
NEAR_MAX: Final = 3


def pages_folder() -> Path:
    """Give the folder with the pages: of the wheel, or of the sources that run. Raises: InvalidConfig."""
    package = Path(str(import_module(PACKAGE).__file__)).parent
    for folder in (package / INSTALLED, package.parent.parent / CHECKED_OUT):
        if folder.is_dir():
            return folder
    from deathless.base.errors import InvalidConfig

    raise InvalidConfig(f"the pages of errors are in neither {package / INSTALLED} nor the sources")


def titles() -> dict[str, str]:
    """Give each code with the name of its error, in the order of the codes."""
    pages = sorted(pages_folder().glob("DL*.md"))
    return {page.stem: page.read_text(encoding="utf-8").partition("\n")[0].split()[-1] for page in pages}


def find(word: str, known: dict[str, str]) -> str:
    """Give the code that a word names: `DL4009`, `4009`, `dl4009`, or `UpgradeRequired`.

    Raises: InvalidArgument naming the nearest ones.
    """
    code = word.upper() if word.upper().startswith("DL") else f"DL{word}"
    names = {name.lower(): code for code, name in known.items()}
    found = code if code in known else names.get(word.lower())
    if found is not None:
        return found
    from deathless.base.errors import InvalidArgument

    near = difflib.get_close_matches(code, known, n=NEAR_MAX, cutoff=0.7)
    near += [names[name] for name in difflib.get_close_matches(word.lower(), names, n=NEAR_MAX, cutoff=0.7)]
    told = ", ".join(f"{code} {known[code]}" for code in dict.fromkeys(near))
    remedy = f"did you mean {told}?" if told else "`deathless explain` lists all codes"
    raise InvalidArgument(f"there is no error {word!r}", remedy=remedy)


def _complete(_context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [
        CompletionItem(code, help=name)
        for code, name in titles().items()
        if code.startswith(incomplete.upper() or "DL")
    ]


@click.command()
@click.argument("code", required=False, shell_complete=_complete)
@json_option
def explain(code: str | None, as_json: bool) -> int:
    """Print the page of an error: its cause, what you see, and what to do. Without CODE, list all of them.

    \b
    deathless explain DL4009
    deathless explain UpgradeRequired
    """
    known = titles()
    if code is None:
        if as_json:
            print_json([{"code": each, "error": name} for each, name in known.items()])
        else:
            print_table(("code", "error"), list(known.items()))
        return 0
    found = find(code, known)
    page = (pages_folder() / f"{found}.md").read_text(encoding="utf-8")
    if as_json:
        print_json({"code": found, "error": known[found], "page": page})
    elif is_terminal():
        from rich.markdown import Markdown

        console().print(Markdown(page))
    else:
        print(page, end="")
    return 0
