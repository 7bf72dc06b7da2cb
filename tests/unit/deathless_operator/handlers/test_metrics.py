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
