"""A real OpenID Connect issuer on this machine: keys of its own, a JWKS and a discovery document over HTTP(S)."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _jwk(key: Key) -> str:
    if isinstance(key, rsa.RSAPrivateKey):
        return str(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
    return str(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))


class LocalIssuer:
    """Answers while `up`; counts what it is asked."""

    def __init__(self, server: ThreadingHTTPServer, scheme: str) -> None:
        self.url = f"{scheme}://localhost:{server.server_address[1]}"
        self.keys: dict[str, Key] = {"first": rsa_key()}
        self.up = True
        self.asked = 0
        self.claimed_issuer = self.url
        self.filler = ""

    def answer(self, path: str) -> bytes | None:
        self.asked += 1
        if not self.up:
            return None
        if path == "/.well-known/openid-configuration":
            return json.dumps({"issuer": self.claimed_issuer, "jwks_uri": f"{self.url}/keys"}).encode()
        shown = []
        for key_id, key in self.keys.items():
            told = _jwk(key)
            shown.append({**json.loads(told), "kid": key_id, "use": "sig"})
        return json.dumps({"keys": shown, "filler": self.filler}).encode()

    def token(self, key_id: str = "first", *, key: Key | None = None, algorithm: str = "RS256", **claims: Any) -> str:
        """Sign a token that is good for five minutes; claims given as None are left out."""
        told: dict[str, object] = {"iss": self.url, "aud": "bank", "sub": "alice", "exp": int(time.time()) + 300}
        told |= claims
        told = {name: value for name, value in told.items() if value is not None}
        return jwt.encode(told, key or self.keys[key_id], algorithm=algorithm, headers={"kid": key_id})


@contextlib.contextmanager
def local_issuer(context: ssl.SSLContext | None = None) -> Iterator[LocalIssuer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = issuer.answer(self.path)
            self.send_response(200 if body is not None else 503)
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - likewise
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    issuer = LocalIssuer(server, "https" if context is not None else "http")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
