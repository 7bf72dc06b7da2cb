"""Choose who provides the cluster: nodes of this machine's namespaces where they can run, else kind.

Why: one suite of tests, wherever it runs. Nodes of our own come first because they know more faults.
DEATHLESS_CLUSTER=bare or =kind chooses by hand.

Guarantees: where neither can run, one line says why and what to install.
"""

from __future__ import annotations

import os

from lab.cluster import bare, kind
from lab.cluster.bare import BareCluster
from lab.cluster.kind import KindCluster
from lab.cluster.machine import LabError

CHOICE = "DEATHLESS_CLUSTER"


class NoCluster(LabError):
    """This machine can run no cluster; the message is the one line that says why."""


def choose() -> BareCluster | KindCluster:
    """Return the cluster this machine can run; it may be down.

    Raises:
        NoCluster: there is none it can run.
    """
    wanted = os.environ.get(CHOICE, "")
    reasons = {"bare": bare.why_not, "kind": kind.why_not}
    if wanted and wanted not in reasons:
        raise NoCluster(f"{CHOICE} is {wanted!r}; it may be bare or kind")
    # A machine that can do both has its own nodes: they know more faults.
    refused = {name: reason() for name, reason in reasons.items() if name == (wanted or name)}
    for name, why in refused.items():
        if why is None:
            return BareCluster() if name == "bare" else KindCluster()
    told = "; ".join(f"{why}" for why in refused.values())
    raise NoCluster(
        f"cluster tests left out: {told}. With a Docker engine: install kind, kubectl and helm, then run again"
    )
