"""Reads objects from the API server over one kept connection.

Why: a test that waits looks several times a second, and a kubectl for each look costs a tenth of a second of processor:
on two cores that would be most of what the cluster itself gets. Guarantees: each look asks the API server anew, as the
administrator of the kubeconfig; where there is no answer, or a refusal, it ends as kubectl's would, in CommandFailed.
Does not: change anything, follow a watch. One thread uses it.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from lab.cluster.machine import CommandFailed

ANSWER_S: Final = 10.0


class Eyes:
    """An administrator's.

    Args:
        settings: gives the kubeconfig as JSON, with its certificates in it.
    """

    def __init__(self, settings: Callable[[], str]) -> None:
        self._settings = settings
        self._connection: http.client.HTTPSConnection | None = None

    def get(self, path: str) -> dict[str, Any]:
        """Return what stands at a path of the API server.

        Raises:
            CommandFailed: it gave no answer, or another than 200.
        """
        kept = self._connection is not None
        try:
            status, body = self._ask(path)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if not kept:
                raise CommandFailed(f"GET {path}", 1, repr(error)) from error
            return self.get(path)  # the connection was of before: whoever is there now has not been asked yet
        if status != http.HTTPStatus.OK:
            why = "Error from server (NotFound): " if status == http.HTTPStatus.NOT_FOUND else ""
            raise CommandFailed(f"GET {path}", 1, f"{why}{status} {body.decode('utf-8', 'replace')}")
        found: dict[str, Any] = json.loads(body)
        return found

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, path: str) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = self._connect()
        self._connection.request("GET", path)
        with self._connection.getresponse() as response:
            return response.status, response.read()

    def _connect(self) -> http.client.HTTPSConnection:
        told = json.loads(self._settings())
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
        return http.client.HTTPSConnection(server.hostname or "", server.port, timeout=ANSWER_S, context=context)
