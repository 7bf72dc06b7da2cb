"""Names fit what Kubernetes takes, for the longest service name there is."""

from __future__ import annotations

from deathless_operator.model import names

LONGEST = "b" * 40


def test_names_of_the_longest_service_are_labels() -> None:
    made = [
        names.primary_service(LONGEST),
        names.headless_service(LONGEST),
        names.config_map(LONGEST),
        names.tls_secret(LONGEST),
        names.client_tls_secret(LONGEST),
        names.lock_tls_secret(LONGEST),
        names.lock_user_secret(LONGEST),
        names.log_claim(LONGEST),
        names.check_pod(LONGEST, "0123456789"),
        names.pod(LONGEST, 6),
        names.runner_pod(LONGEST),
    ]
    assert max(map(len, made)) <= 63
    assert len(names.agent_pod("n" * 63, LONGEST)) <= 253
    assert len(set(made)) == len(made)


def test_pods_that_are_no_replicas_are_not_selected() -> None:
    assert names.selector("bank").items() <= names.labels("bank").items()
    assert names.LABEL_SERVICE not in names.selector("bank")


def test_keys_of_two_namespaces_are_apart() -> None:
    assert names.lock_prefix("prod") == "/deathless/prod/"
    assert names.server_name("prod", "bank") == "bank.prod.svc"
