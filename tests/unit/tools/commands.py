"""Finds the command lines that the documents tell people to type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted(
    path
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "charts").glob("*/README.md")]
    if "design" not in path.relative_to(ROOT).parts
)
# Where a command's words end: the next command, a redirection, a remark, or a description set apart by blanks.
END = re.compile(r"\s\||\s&|\s;|\s[<>]|\s#|\s{2,}|\s2>|$")


@dataclass(frozen=True, slots=True)
class Line:
    """One command line of a page."""

    page: str
    words: tuple[str, ...]
    whole: bool = False  # it stands in a block, as it is typed; else it may leave out what its sentence is not about
    begins: bool = False  # nothing stands before it

    def __str__(self) -> str:
        """Give it as it is told."""
        return f"{self.page}: {' '.join(self.words)}"

    @property
    def options(self) -> list[str]:
        """Give its options, without their values."""
        before = self.words[: self.words.index("--")] if "--" in self.words else self.words
        return [word.partition("=")[0] for word in before if re.match(r"^--?[A-Za-z]", word)]


def code(text: str) -> Iterator[tuple[str, bool]]:
    """Yield what stands as code in a page, and whether in a block: lines that are indented or fenced.

    Words between backticks may go on in the next line.
    """
    text = re.sub(r"\\\n\s*", "", text)
    fenced, prose = False, list[str]()
    for line in [*text.splitlines(), ""]:
        fence = line.lstrip().startswith("```")
        fenced ^= fence
        block = fenced or line.startswith("    ")
        if not (fence or block or not line.strip()):
            prose.append(line)
            continue
        for found in re.findall(r"`([^`]+)`", "\n".join(prose)):
            yield " ".join(found.split()), False
        prose.clear()
        if block and not fence:
            yield line.strip(), True


def commands(program: str) -> list[Line]:
    """Return every command line that begins with `program` (one word, or more)."""
    starts = re.compile(rf"(?:^|[ $(])({re.escape(program)} [^`]+)")
    found = []
    for path in PAGES:
        for piece, whole in code(path.read_text()):
            for match in starts.finditer(piece):
                text = match[1]
                end = END.search(text)
                assert end is not None, "the end of the text ends it"
                try:
                    words = tuple(shlex.split(text[: end.start()].rstrip(")")))
                except ValueError:
                    continue  # a text in quotes that goes on in the next line
                page, begins = str(path.relative_to(ROOT)), match.start(1) == 0
                found.append(Line(page, words[len(program.split()) :], whole, begins))
    return found
