"""Looks at pods over one kept connection: a kubectl for each look costs a tenth of a second of processor.

During a takeover on two cores that would be most of what is measured. Guarantees: a look asks the API server anew.
Does not: change anything.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urlsplit

from tests.cluster.installed import Lab
from tests.cluster.lab.cluster import Pod

PAUSE_S: Final = 0.05  # between two looks
WITHIN_S: Final = 120.0


class Look:
    """An administrator's eyes.

    Args:
        cluster: whose pods.
        namespace: of the pods.
        selector: their labels.
    """

    def __init__(self, cluster: Lab, namespace: str, selector: str) -> None:
        told = json.loads(cluster.kubectl("config", "view", "--raw", "--minify", "-o", "json"))
        where, who = told["clusters"][0]["cluster"], told["users"][0]["user"]
        server = urlsplit(where["server"])
        context = ssl.create_default_context(cadata=base64.b64decode(where["certificate-authority-data"]).decode())
        with tempfile.TemporaryDirectory() as folder:
            pair = Path(folder) / "pair.pem"
            pair.touch(mode=0o600)
            pair.write_bytes(
                base64.b64decode(who["client-certificate-data"]) + b"\n" + base64.b64decode(who["client-key-data"])
            )
            context.load_cert_chain(pair)
        self._connection = http.client.HTTPSConnection(server.hostname or "", server.port, timeout=5, context=context)
        self._path = f"/api/v1/namespaces/{namespace}/pods?{urlencode({'labelSelector': selector})}"

    def pods(self) -> list[Pod]:
        """The pods as they are now. Raises: OSError, http.client.HTTPException."""
        self._connection.request("GET", self._path)
        with self._connection.getresponse() as response:
            found = json.loads(response.read())
        return [Pod.read(one) for one in found["items"]]

    def epoch(self) -> int:
        """The highest epoch that pods announce."""
        told = [json.loads(pod.annotations.get("deathless.dev/status", "{}")) for pod in self.pods()]
        return max((int(one.get("epoch", 0)) for one in told), default=0)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something. Raises: AssertionError when it takes too long."""
        end = time.monotonic() + WITHIN_S
        while True:
            try:
                if condition():
                    return
            except (OSError, http.client.HTTPException, ValueError):
                self._connection.close()
            assert time.monotonic() < end, f"not within {WITHIN_S:g} s: {what}"
            time.sleep(PAUSE_S)

    def close(self) -> None:
        """Hang up."""
        self._connection.close()
