"""`spec.ingress.authentication`: what a replica is told of it, and what contradicts itself."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
import yaml

from deathless.base.config import AuthenticationConfig
from deathless.base.manifest import Manifest, relation_problems
from deathless.base.manifest_ingress import Ingress, authentication_config, authentication_problems

OIDC = {"issuer": "https://login.example.org", "audiences": ["bank"]}


def ingress(**fields: object) -> Ingress:
    return msgspec.convert({"authentication": fields} if fields else {}, Ingress)


def test_a_manifest_that_does_not_say_leaves_it_as_it_was() -> None:
    assert authentication_config(None) is None
    assert authentication_config(ingress()) is None
    assert authentication_problems(ingress()) == []


def test_each_type_becomes_what_a_replica_is_told() -> None:
    assert authentication_config(ingress(type="None")) == AuthenticationConfig(type="None")
    token = ingress(type="Token", token={"path": "callers"}, allowedCallers=["alice"])
    assert authentication_config(token) == AuthenticationConfig(type="Token", tokens="callers", allowed=("alice",))
    mounted = authentication_config(token, tokens="/etc/callers")
    assert mounted is not None
    assert mounted.tokens == "/etc/callers"
    assert authentication_config(ingress(type="MTLS")) == AuthenticationConfig(type="MTLS")
    found = authentication_config(ingress(type="OIDC", oidc=OIDC), tokens="/etc/callers")
    assert found is not None
    assert (found.issuer, found.audiences, found.name_claim) == ("https://login.example.org", ("bank",), "sub")
    assert (found.algorithms, found.leeway_s, found.tokens) == (("RS256", "ES256"), 30, "")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"type": "Token"}, "token"),
        ({"type": "MTLS", "token": {}}, "token"),
        ({"type": "OIDC"}, "oidc"),
        ({"type": "None", "oidc": OIDC}, "oidc"),
        ({"type": "None", "allowedCallers": ["alice"]}, "allowedCallers"),
    ],
)
def test_what_contradicts_itself_is_named(fields: dict[str, object], field: str) -> None:
    assert [each.path[-1] for each in authentication_problems(ingress(**fields))] == [field]


@pytest.mark.parametrize("algorithms", [["none"], ["HS256"], []])
def test_algorithms_of_shared_secrets_and_none_can_not_be_chosen(algorithms: list[str]) -> None:
    with pytest.raises(msgspec.ValidationError):
        ingress(type="OIDC", oidc={**OIDC, "algorithms": algorithms})


PAGE = (Path(__file__).parents[4] / "docs/callers.md").read_text()
MANIFESTS = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", MANIFESTS, ids=lambda text: re.findall(r"type: (\w+)", text)[0])
def test_manifests_of_the_page_are_in_order(text: str) -> None:
    manifest = msgspec.convert(yaml.safe_load(text), Manifest)
    assert relation_problems(manifest) == []
    assert authentication_config(manifest.spec.ingress) is not None


def test_the_page_shows_each_type_that_asks_for_something() -> None:
    assert set(re.findall(r"^      type: (\w+)", PAGE, re.MULTILINE)) == {"Token", "MTLS", "OIDC"}
