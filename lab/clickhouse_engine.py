"""The engine of today's ClickHouse behind HTTP: chdb is the engine as a library, without a server of its own.

What is ClickHouse's here: everything that a statement does, on disk and in memory, the list of running statements, and
KILL. What is ours: the HTTP around it, of which this speaks as much as the store of sinks uses. Each request is run in
a thread of its own, by a connection of its own, at the same time as others. Rows that come as a file of a form are
written to a file, which the statement reads through the table function `file`, once all of it is there.

Guarantees: a process that is killed is an engine that was killed. Does not: users, TLS, formats of its own.

Usage: python -m lab.clickhouse_engine FOLDER PORT
"""

from __future__ import annotations

import email.parser
import email.policy
import os
import sys
import tempfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

_OURS = frozenset({"query", "query_id", "database", "wait_end_of_query", "user", "password"})


class Engine:
    """The library, opened on one folder.

    Args:
        folder: of its data.
    """

    def __init__(self, folder: str) -> None:
        import chdb  # type: ignore[import-not-found] # noqa: PLC0415 - in an environment of its own

        self._connect: Any = chdb.connect
        self._folder = folder
        self._free: dict[tuple[tuple[str, str], ...], list[Any]] = {}  # connections, by their settings
        self._first = chdb.connect(folder)  # keeps the engine open
        self._first.query("CREATE DATABASE IF NOT EXISTS default ENGINE = Atomic")

    def run(self, statement: str, settings: dict[str, str]) -> bytes:
        """Run one statement in a connection that no other uses. Raises: RuntimeError with the engine's words."""
        free = self._free.setdefault(tuple(sorted(settings.items())), [])
        connection = free.pop() if free else self._opened(settings)
        try:
            answer = connection.query(statement, "TabSeparated")
            return bytes(answer.bytes()) if answer is not None else b""
        finally:
            free.append(connection)

    def _opened(self, settings: dict[str, str]) -> Any:
        connection = self._connect(self._folder)
        connection.query("USE default")
        for name, value in settings.items():
            quoted = value.replace("\\", "\\\\").replace("'", "\\'")
            connection.query(f"SET {name} = '{quoted}'")
        return connection


class Request(BaseHTTPRequestHandler):
    """One request."""

    engine: Engine

    def do_POST(self) -> None:
        """Run a statement."""
        given = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        body = (
            self.rfile.read(int(self.headers["Content-Length"])) if "Content-Length" in self.headers else self._chunks()
        )
        statement, path = given.get("query", ""), ""
        kind = self.headers.get("Content-Type", "")
        if kind.startswith("multipart/form-data"):
            name, rows = _file(kind, body)
            with tempfile.NamedTemporaryFile(delete=False, suffix=".tsv") as written:
                written.write(rows)
            path = written.name
            columns, form = given[f"{name}_structure"].replace("'", "\\'"), given[f"{name}_format"]
            statement = statement.replace(f"FROM {name}", f"FROM file('{path}', '{form}', '{columns}')")
        else:
            statement += body.decode()
        settings = {key: value for key, value in given.items() if key not in _OURS and not key.startswith("_")}
        try:
            answer, status = self.engine.run(statement, settings), 200
        except Exception as error:  # noqa: BLE001 - the library's errors have no class of their own in all versions
            answer, status = str(error).encode(), 500
        finally:
            if path:
                os.unlink(path)
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _chunks(self) -> bytes:
        found = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's own name
        """Say nothing."""


def _file(kind: str, body: bytes) -> tuple[str, bytes]:
    """Give the name and the content of a form's only file."""
    parser = email.parser.BytesParser(policy=email.policy.HTTP)
    form: Any = parser.parsebytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body)
    (part,) = form.iter_parts()
    return str(part.get_param("name", header="content-disposition")), bytes(part.get_payload(decode=True))


def main() -> int:
    """Serve until it is killed."""
    Request.engine = Engine(sys.argv[1])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Request).serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
