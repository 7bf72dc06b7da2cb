"""Each block of commands in the pages that people follow in trouble is walked by a test, or listed with a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.cluster.pages import DOCS, Block, block, blocks

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("runbooks", "errors", "kubernetes")
CALL = re.compile(r'walk\(\s*\w+,\s*block\((?P<page>[A-Z_]+|"[^"]+"),\s*"(?P<heading>[^"]+)"')

DOCKER = "it builds or runs an image with a Docker engine, which test machines have not"
SHOWS = "it shows an object and changes nothing; kubectl's own words"
FIRST = "tests/cluster/test_first_service.py does the same, in its own words"
CHARTS = "tests/cluster/test_charts.py installs, upgrades and takes the charts away"
PLUGIN = (
    "tests/cluster/test_plugin_on_the_cluster.py and tests/unit/deathless_operator/cli run each command of the plugin"
)
OPERATORS = "tests/process/test_operators_of_shards.py and tests/unit/deathless_operator/cli/test_plugin_operators.py"

REASONS: dict[str, dict[str, str]] = {
    "errors/DL3120.md": {
        "What you see": "tests/unit/deathless/execution/handlers/test_unknown_methods.py asks this query",
    },
    "kubernetes/certificates.md": {
        "As a caller": "tests/cluster/test_certificates.py calls with that Secret",
        "Renewal": "tests/cluster/test_certificates.py deletes these Secrets and waits for new ones",
    },
    "kubernetes/changing-code.md": {
        "Change your code in a cluster": "tests/cluster/test_upgrades.py gives services other images",
        "What is upgraded to without asking": PLUGIN,
        "LiveUpgrade: tried first, handed over when you say so": "tests/cluster/test_upgrades.py orders one",
    },
    "kubernetes/drills.md": {
        "Drills": "tests/cluster/test_drills.py makes drills and reads them",
    },
    "kubernetes/first-service.md": {
        "Our image, and yours": DOCKER,
        "The operator": FIRST,
        "The service": FIRST,
        "Use it, and kill it": FIRST,
    },
    "kubernetes/image.md": {
        "Image": DOCKER,
        "Programs in other languages": DOCKER,
    },
    "kubernetes/install.md": {
        "Install": CHARTS,
        "In one namespace": "tests/apiserver/test_rights.py runs an operator with the rights of that installation",
    },
    "kubernetes/pipelines.md": {
        "Pipelines in a cluster": "tests/apiserver/test_pipelines.py reads what is shown; no pod runs there",
        "Commands": "tests/process/test_pipeline_up.py runs one of them on a laptop",
    },
    "kubernetes/rehearsals.md": {
        "Rehearsal": "tests/cluster/test_rehearsals.py makes two and waits for them",
        "Replay": "tests/cluster/test_rehearsals.py makes one and waits for it",
    },
    "kubernetes/rights.md": {
        "Rights": "tests/apiserver/test_rights_page.py asks a real API server every question of the page",
    },
    "kubernetes/lock-store.md": {
        "An etcd of yours": "tests/cluster/own_etcd.py and test_lock_stores.py do it with an etcd of their own",
        "Users": "tests/cluster/test_lock_users.py turns them on and off, and asks as their administrator",
        "A user for each service": "tests/process/test_etcd_users.py makes the same user and role",
        "A member has lost its data": "a member's volume of the test cluster is a folder that its pod keeps",
        "All members have lost their data": "the lines of StoreOlderThanLog, which is walked, without the look",
    },
    "kubernetes/operations.md": {
        "Look": SHOWS,
        "Switch over": PLUGIN,
        "Drain a node": "tests/cluster/test_changes.py drains a node",
        "Scale": "tests/cluster/test_changes.py scales",
        "Stop and start": "tests/cluster/test_changes.py suspends and resumes",
        "Fence a replica": PLUGIN,
        "Keep the operator's hands off": PLUGIN,
        "Call": PLUGIN,
        "Handlers that wait, messages set aside, peers": OPERATORS,
    },
    "kubernetes/storage.md": {
        "Backup": "the lines of LogTruncated and OutsideHeld, which are walked",
    },
    "kubernetes/uninstall.md": {
        "The operator, without losing services": CHARTS,
        "One service": "tests/cluster/test_deletion.py deletes services, and waits for their keys",
        "By hand": "tests/process/test_etcd_erase.py erases; etcdctl in a member's pod is walked with Health",
        "Everything": CHARTS,
    },
    "kubernetes/upgrade.md": {
        "Upgrade": CHARTS,
        "Back": CHARTS,
    },
    "runbooks/README.md": {
        "Runbooks": SHOWS,
    },
    "runbooks/alerts.md": {
        "Alerts": SHOWS,
        "DeathlessDrillFailed": SHOWS,
    },
    "runbooks/conditions.md": {
        "Conditions": SHOWS,
    },
}
"""Blocks that no test runs as they are written, by page and heading."""

LISTED = {f"{page} / {heading}" for page, reasons in REASONS.items() for heading in reasons}


def every() -> list[Block]:
    """Every block of commands of these pages."""
    pages = [path for folder in FOLDERS for path in sorted((DOCS / folder).glob("*.md"))]
    return [found for path in pages for found in blocks(str(path.relative_to(DOCS)))]


def place(found: Block) -> str:
    return f"{found.page} / {found.heading}"


def walked() -> set[str]:
    """Page and heading of the blocks that a test walks on a cluster, or on an API server where that is enough."""
    found = set()
    for path in sorted(path for folder in ("apiserver", "cluster") for path in (ROOT / "tests" / folder).glob("*.py")):
        text = path.read_text()
        for call in CALL.finditer(text):
            page = call["page"].strip('"')
            named = re.search(rf'^{page} = "([^"]+)"$', text, re.MULTILINE)
            found.add(f"{named[1] if named else page} / {call['heading']}")
    return found


@pytest.mark.parametrize("found", every(), ids=lambda found: found.name)
def test_block_of_commands_is_walked_or_listed_with_a_reason(found: Block) -> None:
    assert (place(found) in walked()) != (place(found) in LISTED), (
        f"{found.name}: run it with `walk` in tests/apiserver or tests/cluster, or say in REASONS why nothing does"
    )


def test_what_is_walked_and_listed_is_there() -> None:
    assert (walked() | LISTED) <= {place(found) for found in every()}
    assert walked() >= {"runbooks/conditions.md / StoreOlderThanLog", "kubernetes/lock-store.md / Health"}


def test_block_is_found_with_its_lines_as_they_are_written() -> None:
    lines = block("runbooks/conditions.md", "StoreOlderThanLog").lines
    assert [line.split()[:3] for line in lines] == [
        ["kubectl", "-n", "NS"],
        ["kubectl", "deathless", "adopt"],
        ["kubectl", "deathless", "adopt"],
        ["kubectl", "-n", "NS"],
    ]


@pytest.mark.parametrize("found", [each for each in every() if "etcdctl" in each.script], ids=lambda found: found.name)
def test_etcdctl_in_a_members_pod_is_given_no_option_that_its_environment_holds(found: Block) -> None:
    inside = [line for line in found.lines if "exec" in line]
    assert not [line for line in inside if re.search(r"--(cacert|cert|key|endpoints)\b", line)], (
        "etcdctl refuses an option whose variable is set: the pod sets ETCDCTL_CACERT and the like"
    )
