"""The page of rights is what the roles say; `may` answers as RBAC does, of which tests/apiserver asks a real server."""

from __future__ import annotations

from tools import rights


def test_page_is_as_the_roles_are() -> None:
    assert rights.page() == rights.PAGE.read_text(), "python tools/rights.py writes it"


def test_names_and_places_of_a_rule_count() -> None:
    body = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["one"]}
    rules = [rights.Rule("shop", body)]
    asked = rights.Question("get", "", "secrets", "shop", "one")
    assert rights.may(rules, asked)
    assert not rights.may(rules, asked._replace(name="two"))
    assert not rights.may(rules, asked._replace(name=""))
    assert not rights.may(rules, asked._replace(namespace="other"))
    assert not rights.may(rules, asked._replace(verb="list"))
    assert rights.may([rights.Rule("", body)], asked._replace(namespace="other"))
