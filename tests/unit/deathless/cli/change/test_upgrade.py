"""`deathless upgrade --json` of several shards: what came of each is told, also where one fails."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from deathless.base.errors import UpgradeCalledOff, UpgradeRefused
from deathless.cli.change import upgrade as module
from deathless.shell.operate.upgrading.live_upgrade import Outcome

DONE = Outcome(shard=0, generation=2, fingerprint="00", primary="r0", epoch=3, unavailable_s=0.1, missing=[])


@pytest.mark.parametrize("command", [["--to", "v2.py:bank"], ["back-out"]])
@pytest.mark.parametrize(
    ("error", "code"), [(UpgradeRefused("no"), UpgradeRefused.code), (KeyboardInterrupt(), UpgradeCalledOff.code)]
)
def test_upgrade_that_fails_at_a_shard_tells_what_came_of_each(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: str, command: list[str]
) -> None:
    async def run(*arguments: Any, **_: Any) -> None:
        arguments[-1].append(DONE)
        raise error

    shards = tuple(SimpleNamespace(shard=number) for number in range(3))
    monkeypatch.setattr(module, "target", lambda *_, **__: SimpleNamespace(shards=shards))
    monkeypatch.setattr(module, "_upgrade_all", run)
    result = CliRunner().invoke(module.upgrade, [*command, "--json"], standalone_mode=False)
    assert result.exception is not None
    done, failed, left = json.loads(result.stdout)["shards"]
    assert (done["shard"], done["generation"]) == (0, 2)
    assert (failed["shard"], failed["error"]["code"]) == (1, code)
    assert left == {"shard": 2, "error": None, "begun": False}
