"""What an action is about, and what it waits for."""

from __future__ import annotations

from deathless_operator.plan.actions import Apply, DeletePod, MakeToken, PatchMetadata, Target, lacking, target

MANIFEST = {"kind": "ConfigMap", "metadata": {"name": "bank-config"}}
CONFIG = Target("ConfigMap", "bank-config")


def test_each_action_is_about_one_object() -> None:
    patch = PatchMetadata(api_version="v1", kind="Pod", name="bank-0", uid="u", why="w")
    assert target(Apply(manifest=MANIFEST, why="w")) == CONFIG  # type: ignore[arg-type]
    assert target(MakeToken(manifest=MANIFEST, why="w")) == CONFIG  # type: ignore[arg-type]
    assert target(patch) == Target("Pod", "bank-0")
    assert str(CONFIG) == "ConfigMap bank-config"


def test_action_waits_for_what_it_needs_and_for_nothing_else() -> None:
    delete = DeletePod(name="bank-0", uid="u", grace_s=None, force=False, why="w", needs=frozenset({CONFIG}))
    assert lacking(delete, [Target("ConfigMap", "other"), Target("Service", "bank-config")]) == frozenset()
    assert lacking(delete, [CONFIG]) == {CONFIG}
    assert lacking(PatchMetadata(api_version="v1", kind="Pod", name="x", uid="u", why="w"), [CONFIG]) == frozenset()
