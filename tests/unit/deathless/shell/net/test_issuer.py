"""Tokens of an issuer that really runs: what is believed, and what becomes of callers while it is away."""

from __future__ import annotations

import base64
import hmac
import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.unit.deathless.shell.oidc_issuer import LocalIssuer, local_issuer, rsa_key

from deathless.base.config import AuthenticationConfig
from deathless.base.errors import DeathlessError, InvalidConfig, IssuerUnavailable, NotAuthenticated
from deathless.base.limits import ISSUER_ANSWER_BYTES_MAX, KNOWN_TOKENS_MAX
from deathless.core.access.callers import Caller, KeysWanted
from deathless.shell.net.issuer import FRESH_S, KEPT_S, UNKNOWN_PAUSE_S, Issuer

pytestmark = pytest.mark.asyncio


@pytest.fixture
def local() -> Iterator[LocalIssuer]:
    with local_issuer() as found:
        yield found


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0
        self.ahead = 0.0


def judge_of(local: LocalIssuer, clock: Clock | None = None, **fields: Any) -> Issuer:
    clock = clock or Clock()
    told = {"type": "OIDC", "issuer": local.url, "audiences": ("bank", "shop"), "leeway_s": 5, **fields}
    config = msgspec.convert(told, AuthenticationConfig)
    return Issuer(config, now=lambda: clock.now, wall=lambda: time.time() + clock.ahead)


async def judged(issuer: Issuer, token: str | bytes) -> Caller:
    shown = token.encode() if isinstance(token, str) else token
    try:
        return issuer.judge(shown)
    except KeysWanted:
        await issuer.fetch()
        return issuer.judge(shown, again=True)


async def refusal(issuer: Issuer, token: str | bytes) -> DeathlessError:
    with pytest.raises(DeathlessError) as found:
        await judged(issuer, token)
    text = token if isinstance(token, str) else token.decode("latin-1")
    assert not text or text not in str(found.value), "a token is never told"
    return found.value


async def test_good_token_names_its_caller(local: LocalIssuer) -> None:
    caller = await judged(judge_of(local), local.token(aud=["other", "bank"]))
    assert (caller.name, caller.full) == ("alice", f"oidc:{local.url}#alice")
    named = judge_of(local, name_claim="email", required_claims={"groups": "tellers", "zone": "eu"})
    token = local.token(email="a@example.org", groups=["all", "tellers"], zone="eu")
    assert (await judged(named, token)).name == "a@example.org"


async def test_keys_address_may_be_named(local: LocalIssuer) -> None:
    assert (await judged(judge_of(local, keys_url=f"{local.url}/keys"), local.token())).name == "alice"
    assert local.asked == 1


async def test_issuer_over_tls_is_checked_by_its_authority(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    with local_issuer(context) as local:
        assert (await judged(judge_of(local, ca=str(tmp_path / "ca.pem")), local.token())).name == "alice"
        assert isinstance(await refusal(judge_of(local), local.token()), IssuerUnavailable)


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": 1}, {"exp": None}, {"iss": "https://other.example.org"}, {"iss": None}, {"aud": "other"},
        {"aud": None}, {"sub": None}, {"sub": ""}, {"sub": 7}, {"nbf": 1 << 40}, {"exp": "soon"}, {"exp": 10**400},
    ],
    ids=str,
)  # fmt: skip
async def test_token_with_a_bad_claim_is_refused(local: LocalIssuer, claims: dict[str, Any]) -> None:
    assert isinstance(await refusal(judge_of(local), local.token(**_signable(local, claims))), NotAuthenticated)


def _signable(local: LocalIssuer, claims: dict[str, Any]) -> dict[str, Any]:
    """The library signs no subject that is no text; the tests of forged tokens below do."""
    return {"sub": None} if claims.get("sub") == 7 else claims


async def test_required_claim_must_be_there_and_as_asked(local: LocalIssuer) -> None:
    issuer = judge_of(local, required_claims={"groups": "tellers"})
    for claims in ({}, {"groups": "others"}, {"groups": ["others"]}, {"groups": {"tellers": 1}}):
        assert isinstance(await refusal(issuer, local.token(**claims)), NotAuthenticated)


async def test_leeway_covers_a_clock_that_differs(local: LocalIssuer) -> None:
    just = local.token(exp=int(time.time()) - 2)
    assert (await judged(judge_of(local, leeway_s=300), just)).name == "alice"
    assert isinstance(await refusal(judge_of(local, leeway_s=0), just), NotAuthenticated)


def _part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


async def test_forged_tokens_are_refused(local: LocalIssuer) -> None:
    issuer = judge_of(local)
    good = local.token()
    head, body, signature = good.split(".")
    public = local.keys["first"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    shared = _part({"alg": "HS256", "kid": "first"})
    mac = hmac.digest(public, f"{shared}.{body}".encode(), "sha256")
    forged = [
        f"{_part({'alg': 'none', 'kid': 'first'})}.{body}.",
        f"{_part({'alg': 'HS256', 'kid': 'first'})}.{body}.{signature}",
        f"{shared}.{body}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}",  # signed with what everybody knows
        f"{head}.{_part({'sub': 'bob', 'iss': local.url, 'aud': 'bank', 'exp': 1 << 40})}.{signature}",
        local.token(key=rsa_key()),  # the key id of ours, another's signature
        local.token(key=ec.generate_private_key(ec.SECP256R1()), algorithm="ES256"),
        f"{_part({'alg': 'RS256', 'kid': ['first']})}.{body}.{signature}",
        f"{_part(['RS256'])}.{body}.{signature}",
        f"{'[' * 5000}.{body}.{signature}",
        "", ".", "..", "a.b.c", "no token at all", "\x00" * 40,
    ]  # fmt: skip
    for token in forged:
        assert isinstance(await refusal(issuer, token), NotAuthenticated), token[:40]
    assert isinstance(await refusal(issuer, b"\xff\xfe.\xff.\xff"), NotAuthenticated)
    assert (await judged(issuer, good)).name == "alice", "and nobody else pays for it"


async def test_algorithm_that_the_manifest_does_not_list_is_refused(local: LocalIssuer) -> None:
    local.keys["curve"] = ec.generate_private_key(ec.SECP256R1())
    token = local.token("curve", algorithm="ES256")
    assert (await judged(judge_of(local), token)).name == "alice"
    assert isinstance(await refusal(judge_of(local, algorithms=("RS256",)), token), NotAuthenticated)


async def test_new_key_of_the_issuer_is_fetched_at_a_bounded_rate(local: LocalIssuer) -> None:
    clock = Clock()
    issuer = judge_of(local, clock, keys_url=f"{local.url}/keys")
    await judged(issuer, local.token())
    local.keys = {"second": rsa_key()}
    clock.now += UNKNOWN_PAUSE_S
    assert (await judged(issuer, local.token("second"))).name == "alice"
    assert local.asked == 2
    strange = rsa_key()
    for number in range(20):
        await refusal(issuer, local.token(f"strange-{number}", key=strange))
    assert local.asked == 2, "who makes key ids up makes nobody ask"
    clock.now += UNKNOWN_PAUSE_S
    await refusal(issuer, local.token("strange", key=strange))
    assert local.asked == 3


async def test_work_goes_on_while_the_issuer_is_away(local: LocalIssuer) -> None:
    clock = Clock()
    issuer = judge_of(local, clock)
    local.up = False
    assert isinstance(await refusal(issuer, local.token()), IssuerUnavailable)
    local.up = True
    clock.now += UNKNOWN_PAUSE_S
    await judged(issuer, local.token())
    local.up = False
    for _ in range(3):
        clock.now += FRESH_S + 1
        assert (await judged(issuer, local.token())).name == "alice", "by the keys that are kept"
        await issuer.fetch()
    clock.now += KEPT_S
    assert isinstance(await refusal(issuer, local.token()), IssuerUnavailable)
    local.up = True
    clock.now += UNKNOWN_PAUSE_S
    assert (await judged(issuer, local.token())).name == "alice"


async def test_token_that_was_good_expires(local: LocalIssuer) -> None:
    clock = Clock()
    issuer, token = judge_of(local, clock), local.token()
    await judged(issuer, token)
    clock.ahead = 400.0
    assert "expired" in (await refusal(issuer, token)).message


async def test_key_that_the_issuer_withdrew_opens_nothing(local: LocalIssuer) -> None:
    clock = Clock()
    issuer, token = judge_of(local, clock), local.token()
    await judged(issuer, token)
    local.keys = {"first": rsa_key()}  # the same id
    clock.now += FRESH_S + 1
    issuer.judge(token.encode())  # begins to fetch
    await issuer.fetch()
    assert isinstance(await refusal(issuer, token), NotAuthenticated)


async def test_what_an_issuer_answers_is_bounded_and_checked(local: LocalIssuer) -> None:
    local.filler = "x" * ISSUER_ANSWER_BYTES_MAX
    assert isinstance(await refusal(judge_of(local), local.token()), IssuerUnavailable)
    local.filler, local.claimed_issuer = "", "https://other.example.org"
    assert isinstance(await refusal(judge_of(local), local.token()), IssuerUnavailable)
    local.claimed_issuer, local.keys = local.url, {}
    assert isinstance(await refusal(judge_of(local), local.token("first", key=rsa_key())), IssuerUnavailable)


async def test_tokens_that_were_judged_are_forgotten_beyond_a_maximum(local: LocalIssuer) -> None:
    issuer = judge_of(local)
    first = await judged(issuer, local.token())
    issuer._known = {b"%d" % number: first for number in range(KNOWN_TOKENS_MAX)}
    await judged(issuer, local.token(sub="bob"))
    assert len(issuer._known) == KNOWN_TOKENS_MAX


async def test_plain_http_is_for_this_machine_alone(local: LocalIssuer) -> None:
    for field in ("issuer", "keys_url"):
        named: dict[str, Any] = {field: "http://login.example.org"}
        with pytest.raises(InvalidConfig, match="https"):
            judge_of(local, **named)
