"""Whoever can't be asked has not agreed."""

from __future__ import annotations

import pytest

from deathless.base.errors import InvalidArgument
from deathless.cli.confirming import confirmed


@pytest.mark.parametrize(("terminal", "as_json"), [(False, False), (True, True), (False, True)])
def test_without_a_person_it_is_refused(monkeypatch: pytest.MonkeyPatch, terminal: bool, as_json: bool) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: terminal)
    monkeypatch.setattr("click.confirm", lambda *_, **__: True)
    with pytest.raises(InvalidArgument, match="erasing needs a confirmation, and there is nobody to ask"):
        confirmed("Erase?", "erasing", as_json=as_json)


@pytest.mark.parametrize("answer", [False, True])
def test_a_person_sees_what_it_is_about_and_is_asked(monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    seen: list[object] = []

    def confirm(question: str, *, default: bool) -> bool:
        seen.append((question, default))
        return answer

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("click.confirm", confirm)
    assert confirmed("Erase?", "erasing", as_json=False, show=lambda: seen.append("keys")) is answer
    assert seen == ["keys", ("Erase?", False)]
