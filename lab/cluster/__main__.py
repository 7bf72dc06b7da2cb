"""The lab's command line: `python -m lab.cluster up | down | load ARCHIVE | kubectl ... | helm ...`.

Exit code 0 = done, 3 = this machine can run no cluster (one line says why), 1 = it failed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from lab import kubernetes
from lab.cluster.machine import ROOT, LabError, run, say
from lab.cluster.provider import NoCluster, choose

_USAGE = """usage: python -m lab.cluster COMMAND
  possible           exit code 0 when this machine can run a cluster
  up [ARCHIVE ...]   start a cluster from nothing and load images into it
  down               end it and remove what it left behind; nodes keep their images for the next time
  running            exit code 0 when a cluster is up
  load ARCHIVE ...   load docker archives into every node
  image              build our image and load it into every node
  kubeconfig         print the path of the administrator's kubeconfig
  kubectl ...        run kubectl        helm ...    run helm
  exec NODE ...      run a program as root on a node
"""


def main(arguments: Sequence[str]) -> int:
    """Run one command."""
    if not arguments:
        print(_USAGE, end="")
        return 2
    try:
        return _command(arguments[0], arguments[1:])
    except NoCluster as none:
        print(none)
        return 3
    except (LabError, kubernetes.GoMissing, kubernetes.BuildFailed) as failed:
        print(failed, file=sys.stderr)
        return 1


def _command(name: str, rest: Sequence[str]) -> int:
    """Run one command on the cluster that this machine can have."""
    cluster = choose()
    match name:
        case "possible":
            pass  # `choose` has looked
        case "up":
            cluster.up()
            for archive in rest:
                cluster.load_image(Path(archive).resolve())
            say(f"up: export KUBECONFIG={cluster.kubeconfig}")
        case "down":
            cluster.down()
            say("down")
        case "running":
            return 0 if cluster.running() else 1
        case "load":
            for archive in rest:
                cluster.load_image(Path(archive).resolve())
        case "image":
            archive = run(sys.executable, ROOT / "tools" / "image.py", timeout_s=1800).strip()
            cluster.load_image(Path(archive))
        case "kubeconfig":
            print(cluster.kubeconfig)
        case "kubectl" | "helm":
            os.environ["KUBECONFIG"] = str(cluster.kubeconfig)
            os.execv(cluster.binaries[name], [name, *rest])
        case "exec":
            print(cluster.node_exec(rest[0], *rest[1:]), end="")
        case _:
            print(_USAGE, end="", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
