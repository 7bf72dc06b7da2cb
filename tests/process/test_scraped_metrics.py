"""What a scraper gets from the health ports of real replicas whose other ports want certificates.

Alerts, dashboards and the page of metrics name what these processes tell, and nothing else.
"""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from replica_set import ALL, wait_for
from test_pod_replica import PodSet
from test_tls_set import files_in

from deathless.base.config import TlsConfig
from deathless.shell.web.application_metrics import expose_application
from deathless.shell.web.replica_metrics import MESSAGING, MESSAGING_GROWING
from deathless.shell.web.sink_metrics import expose_sinks
from deathless.shell.web.source_metrics import expose_sources

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "kubernetes" / "metrics.md"
USED = [ROOT / "charts" / "deathless" / "alerts" / "rules.yaml"]
USED += sorted((ROOT / "charts" / "deathless" / "dashboards").glob("*.json"))
OURS = re.compile(r"\bdeathless_(?:replica|supervisor|ingress)_[a-z_]+")


@pytest.fixture(name="told", scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """All that three replicas tell a scraper without a certificate."""
    folder = tmp_path_factory.mktemp("scraped")
    authority = trustme.CA()
    files = files_in(folder / "tls", authority.issue_cert("127.0.0.1"), authority)
    paths = {"ca": str(files.ca), "certificate": str(files.certificate), "key": str(files.key)}
    tls = TlsConfig(**paths, require_client_certificate=True)
    with PodSet(folder, tls=tls, ingress_tls="") as pods:
        pods.wait_roles(**ALL)
        pages = [wait_for(lambda name=name: scrape(pods, name), f"all of {name}", pods.describe) for name in pods.names]  # type: ignore[misc]  # mypy does not know a default's type here
        yield "".join(pages)


def scrape(pods: PodSet, name: str) -> str:
    """A replica's page; empty until its worker and its HTTP port answer."""
    with urllib.request.urlopen(f"http://{pods.health(name)}/metrics", timeout=30) as answer:
        page = str(answer.read().decode())
    whole = "deathless_ingress_ready{" in page and re.search(r"^deathless_replica_up\{.*\} 1\.0$", page, re.MULTILINE)
    return page if whole else ""


def families(told: str) -> dict[str, str]:
    """Each metric with its kind."""
    return dict(re.findall(r"^# TYPE (\S+) (\S+)", told, re.MULTILINE))


def series(told: str) -> set[str]:
    """Names as a query has them."""
    found = set()
    for name, kind in families(told).items():
        found |= {f"{name}_bucket", f"{name}_count", f"{name}_sum"} if kind == "histogram" else {name}
    return found


def documented() -> set[str]:
    """Names in the page's table of replicas; `_lsn` behind `deathless_replica_epoch` is `deathless_replica_lsn`."""
    page = PAGE.read_text()
    table = page[page.index("## Replicas") : page.index("## Operator")]
    found = set()
    for line in table.splitlines():
        names = re.findall(r"`([a-z_]+)(?:\{[a-z]+\})?`", line.split("|")[1]) if line.startswith("| `") else []
        first = names[0] if names else ""
        found |= {"_".join(first.split("_")[:2]) + name if name.startswith("_") else name for name in names}
    return found


def test_http_port_behind_certificates_is_told_on_the_health_port(told: str) -> None:
    assert len(re.findall(r"^deathless_ingress_ready\{", told, re.MULTILINE)) == 3
    assert len(re.findall(r"^deathless_replica_up\{[^}]*\} 1\.0$", told, re.MULTILINE)) == 3
    assert len(re.findall(r"^deathless_supervisor_ready\{", told, re.MULTILINE)) == 3


def test_no_family_is_told_twice_by_one_replica(told: str) -> None:
    heads = re.findall(r"^# TYPE (\S+) ", told, re.MULTILINE)
    assert all(heads.count(name) <= 3 for name in heads), "a scraper refuses a page with a family in two places"


@pytest.mark.parametrize("path", USED, ids=lambda path: path.name)
def test_alerts_and_dashboards_name_what_is_told(path: Path, told: str) -> None:
    used = set(OURS.findall(path.read_text()))
    assert used <= series(told), sorted(used - series(told))


def test_some_are_used() -> None:
    assert {name for path in USED for name in OURS.findall(path.read_text())}


def told_elsewhere() -> set[str]:
    """Families of drivers, traces, sinks, sources and programs, which these replicas have none of."""
    told = expose_sinks({"facts": None}, {}), expose_sources({"flights": None}, {}), expose_application(None, {})
    beside = b"".join(told).decode()
    names = [name for name in MESSAGING if name.startswith(("driver_", "spans_"))]
    return {f"deathless_{name}{'_total' if name in MESSAGING_GROWING else ''}" for name in names} | set(
        families(beside)
    )


def test_page_names_what_is_told_and_nothing_else(told: str) -> None:
    assert documented() == set(families(told)) | told_elsewhere()
