"""A hook of the documentation's site: links that lead into the tree.

Why: pages are read in two places. In the tree `../../examples/kubernetes/bank.yaml` leads to the file; a site has no
such file, so there the link becomes plain text, and the strict build can still tell a broken link from one that leaves
the site. Guarantees: only links to files that exist are taken; anything else stays and fails. Does not: change files.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[([^\]]+)\]\((?![a-z]+:)([^)#\s]+)(#[^)\s]*)?\)")
#: Below docs/ and yet not on the site: decisions, for those who work on the tree.
OFF_SITE = ("docs/design/",)


def leaves_site(page: str, target: str) -> bool:
    """Tell whether a link of `page` (a path below docs/) leads to a file or folder that is not on the site."""
    parts: list[str] = []
    for part in PurePosixPath("docs", page).parent.joinpath(target).parts:
        parts = parts[:-1] if part == ".." else [*parts, part]
    whole = "/".join(parts)
    inside = whole.startswith("docs/") and not f"{whole}/".startswith(OFF_SITE)
    found = ROOT / whole
    return found.exists() and (not inside or found.is_dir())


def plain(markdown: str, page: str) -> str:
    """Give the text with such links as words."""

    def replace(match: re.Match[str]) -> str:
        return match[1] if leaves_site(page, match[2]) else match[0]

    return LINK.sub(replace, markdown)


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """See mkdocs."""
    return plain(markdown, page.file.src_uri)
