"""What a check found: findings in plain words, notes, and what was done.

Does not: print. Imports base.
"""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that a program does wrong.

    Attributes:
        rule: a word for it, the same in each release.
        scenario: in which it was found.
        what: a sentence.
        remedy: what its author should do.
        target: of the message that it is about; "": the service itself, or no message.
        position: of that message among all for this target, from 1; 0: it is about none.
        method: of that message.
        expected: what was right.
        got: what came.
        output: last lines that the program printed, if it ended.
    """

    rule: str
    scenario: str
    what: str
    remedy: str
    target: str = ""
    position: int = 0
    method: int | None = None
    expected: str = ""
    got: str = ""
    output: tuple[str, ...] = ()


class Report(msgspec.Struct, kw_only=True, rename="camel"):
    """One check.

    Attributes:
        seed: that gives the same again.
        scenarios: that were run, in order.
        calls: that the program got in its first run.
        outputs: that it sent then.
        findings: what is wrong.
        notes: what is not wrong, and worth to know.
    """

    seed: int
    scenarios: list[str] = msgspec.field(default_factory=list)
    calls: int = 0
    outputs: int = 0
    findings: list[Finding] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings
