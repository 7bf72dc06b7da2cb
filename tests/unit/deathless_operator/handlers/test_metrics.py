"""What Prometheus is told."""

from __future__ import annotations

from deathless_operator.handlers.metrics import Metrics


def lines(metrics: Metrics, name: str) -> list[str]:
    return [line for line in metrics.text().decode().splitlines() if line.startswith(f"deathless_operator_{name}{{")]


def test_condition_has_one_status_at_a_time() -> None:
    metrics = Metrics()
    metrics.set_conditions("shop", "bank", [("Ready", "True"), ("Degraded", "False")])
    metrics.set_conditions("shop", "bank", [("Ready", "False")])
    found = lines(metrics, "service_condition")
    assert len(found) == 1 and 'condition="Ready"' in found[0] and 'status="False"' in found[0]


def test_replicas_wanted_have_a_shard_where_there_are_several() -> None:
    metrics = Metrics()
    metrics.set_wanted("shop", "till", shards=1, replicas=3)
    metrics.set_wanted("shop", "bank", shards=2, replicas=3)
    metrics.set_wanted("shop", "bank", shards=2, replicas=0)
    assert lines(metrics, "service_replicas_wanted") == [
        'deathless_operator_service_replicas_wanted{namespace="shop",service="till",shard=""} 3.0',
        'deathless_operator_service_replicas_wanted{namespace="shop",service="bank",shard="0"} 0.0',
        'deathless_operator_service_replicas_wanted{namespace="shop",service="bank",shard="1"} 0.0',
    ]
    metrics.forget("shop", "bank")
    metrics.forget("shop", "bank")
    assert ['service="till"' in line for line in lines(metrics, "service_replicas_wanted")] == [True]


def test_failure_of_a_drill_is_shown_until_a_run_passes() -> None:
    metrics = Metrics()
    metrics.set_drill("shop", "weekly", None)
    metrics.set_drill("shop", "weekly", 1800000000.0)
    metrics.set_drill("shop", "weekly", 1800000060.0)
    (shown,) = lines(metrics, "drill_failed_timestamp_seconds")
    assert 'drill="weekly",namespace="shop"' in shown and float(shown.rpartition(" ")[2]) == 1800000060
    metrics.set_drill("shop", "weekly", None)
    metrics.set_drill("shop", "weekly", None)
    assert lines(metrics, "drill_failed_timestamp_seconds") == []


def test_series_of_a_service_go_away_with_it() -> None:
    metrics = Metrics()
    for name in ("bank", "till"):
        metrics.set_conditions("shop", name, [("Ready", "True")])
        metrics.takeovers.labels("shop", name).inc()
    assert "deathless_operator_services 2.0" in metrics.text().decode()
    metrics.forget("shop", "bank")
    metrics.forget("shop", "none")
    assert all('service="till"' in line for line in lines(metrics, "service_condition"))
    assert all('service="till"' in line for line in lines(metrics, "takeovers_total"))
    assert "deathless_operator_services 1.0" in metrics.text().decode()
