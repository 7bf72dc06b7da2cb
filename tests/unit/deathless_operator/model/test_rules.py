"""Each rule has its samples, and the operator itself agrees with what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from deathless.base.limits import Limits
from deathless.base.schema_check import find_problems
from deathless_operator.model.drill import DrillSpec, drill_problems
from deathless_operator.model.rules import (
    DRILL_RULES,
    LIVE_UPGRADE_RULES,
    PIPELINE_RULES,
    REHEARSAL_RULES,
    REPLAY_RULES,
    SERVICE_RULES,
    Rule,
)
from deathless_operator.model.service import read_spec
from deathless_operator.model.spark_pipeline import read_pipeline
from deathless_operator.plan.log_runs.reading import read_rehearsal, read_replay
from deathless_operator.plan.service.reading import read_live_upgrade

SAMPLES = Path(__file__).resolve().parents[4] / "tests/samples"
RULES = [
    *(("service", rule) for rule in SERVICE_RULES),
    *(("drill", rule) for rule in DRILL_RULES),
    *(("upgrade", rule) for rule in LIVE_UPGRADE_RULES),
    *(("replay", rule) for rule in REPLAY_RULES),
    *(("rehearsal", rule) for rule in REHEARSAL_RULES),
    *(("pipeline", rule) for rule in PIPELINE_RULES),
]
# The API server alone knows what was before, and reads texts as quantities and schedules.
SERVER_ALONE = ("drill-schedule-has-five-fields",)


def sample(folder: str, rule: Rule, what: str) -> tuple[str, list[Any]]:
    """The first line and the documents of a sample."""
    text = (SAMPLES / folder / f"{rule.name}.{what}.yaml").read_text()
    return text.partition("\n")[0], list(yaml.safe_load_all(text))


def problems(folder: str, manifest: Any) -> list[str]:
    """What the operator finds wrong."""
    if folder == "service":
        return list(read_spec(manifest)[1])
    if folder == "upgrade":
        return list(read_live_upgrade(manifest).problems)
    if folder == "replay":
        return list(read_replay(manifest).problems)
    if folder == "rehearsal":
        return list(read_rehearsal(manifest).problems)
    if folder == "pipeline":
        return list(read_pipeline(manifest).problems)
    found = find_problems(manifest["spec"], DrillSpec)
    return [str(problem) for problem in found] or drill_problems(msgspec.convert(manifest["spec"], DrillSpec))


@pytest.mark.parametrize(("folder", "rule"), RULES, ids=[rule.name for _, rule in RULES])
def test_rule_has_a_sample_of_each_kind(folder: str, rule: Rule) -> None:
    accepted, taken = sample(folder, rule, "accepted")
    refused, others = sample(folder, rule, "refused")
    assert accepted == "# accepted"
    assert refused.removeprefix("# refused: ") == rule.message
    assert len(taken) == len(others) == (2 if "oldSelf" in rule.rule else 1)


@pytest.mark.parametrize(("folder", "rule"), RULES, ids=[rule.name for _, rule in RULES])
def test_operator_agrees_with_the_rule(folder: str, rule: Rule) -> None:
    _, taken = sample(folder, rule, "accepted")
    _, others = sample(folder, rule, "refused")
    assert [problems(folder, manifest) for manifest in taken] == [[] for _ in taken]
    if "oldSelf" not in rule.rule and rule.name not in SERVER_ALONE:
        assert problems(folder, others[-1]), "a resource from before the rule is refused, too"


def test_no_sample_is_without_a_rule() -> None:
    named = {f"{folder}/{rule.name}" for folder, rule in RULES}
    assert {f"{path.parent.name}/{path.name.split('.')[0]}" for path in SAMPLES.glob("*/*.yaml")} == named


def test_rules_have_names_and_words_of_their_own() -> None:
    assert len({rule.name for _, rule in RULES}) == len(RULES)
    assert all(rule.message and not rule.message.endswith(".") for _, rule in RULES)


def test_every_relation_of_limits_has_a_rule() -> None:
    rules = " ".join(rule.message for rule in SERVICE_RULES if rule.where == "spec.limits")
    relations = ["messageBytesMax", "segmentBytesMax", "spareBytes", "pendingBytesMax", "suspectAfterS", "reignMaxS"]
    assert all(word in rules for word in [*relations, "keyBytesMax", "checkpointsKept"])
    assert repr(Limits().suspect_after_s) in " ".join(rule.rule for rule in SERVICE_RULES)
