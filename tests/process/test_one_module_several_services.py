"""One module runs as two services: the name in the manifest decides, over HTTP, for clients and for its own stubs."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path

from cli_tool import Bank
from lab.ports import free_ports
from replica_set import wait_for

MODULE = """\
from deathless import Context, Service, Struct, peer


class Shelf(Struct):
    count: int = 0


stock = Service("stock", state=Shelf)


@stock.handler
def add(shelf: Shelf, ctx: Context, number: int) -> int:
    shelf.count += number
    return shelf.count


@stock.handler
def hand_on(shelf: Shelf, ctx: Context, to: str) -> None:
    own.fork(ctx, to, add, shelf.count)
    shelf.count = 0


@stock.query
def count(shelf: Shelf) -> int:
    return shelf.count


own = peer(stock)
"""
MANIFEST = """\
apiVersion: deathless.dev/v1alpha1
kind: DeathlessService
metadata: {{name: {name}}}
spec:
  module: stock.py:stock
  replicas: 1
  ingress: {{port: {port}}}
"""


class Stock(Bank):
    """The module as the service of a name."""

    def __init__(self, folder: Path, name: str, port: int) -> None:
        super().__init__(folder, replicas=1)
        self.directory = folder / ".deathless" / name
        (folder / "stock.py").write_text(MODULE)
        self.manifest.write_text(MANIFEST.format(name=name, port=port))
        self.port = port

    def post(self, path: str, body: dict[str, object]) -> tuple[int, object]:
        """Call over HTTP; gives status and answer."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null")
        except urllib.error.URLError:
            return 0, None  # nobody listens yet

    def answers(self, path: str) -> bool:
        """Whether it is called there."""
        return self.post(path, {"number": 0})[0] == 200

    def counts(self, key: str, number: int) -> bool:
        """Whether a key holds so many."""
        return self.run("query", "count", "--key", key).stdout.strip() == str(number)


def test_one_module_serves_under_the_names_of_two_manifests(tmp_path: Path) -> None:
    ports = free_ports(2)
    with Stock(tmp_path / "a", "east", ports[0]) as east, Stock(tmp_path / "b", "west", ports[1]) as west:
        for one, name, number in ((east, "east", 5), (west, "west", 7)):
            one.up()
            wait_for(partial(one.answers, f"/{name}/k/add"), f"{name} serves")
            assert one.post(f"/{name}/k/add", {"number": number}) == (200, number)
            assert one.run("call", "add", "--key", "k", "--arg", "number=1").stdout.strip() == str(number + 1)
            assert one.post(f"/{name}/k/hand_on", {"to": "other"})[0] in (200, 204)
        assert west.post("/east/k/add", {"number": 1})[0] == 404, "another service's name"
        assert west.post("/stock/k/add", {"number": 1})[0] == 404, "the module's own name is a default alone"
        for one, number in ((east, 6), (west, 8)):
            wait_for(partial(one.counts, "other", number), "its own stubs name it")
        assert json.loads(east.run("openapi", "-f", "service.yaml").stdout)["info"]["title"] == "east"
        east.down()
        east.up()
        wait_for(lambda: east.post("/east/other/add", {"number": 0}) == (200, 6), "the log is read under its name")
