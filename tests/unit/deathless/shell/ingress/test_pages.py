"""Pages for people: whole without another address, of the service's name alone, and guarded against other pages."""

from __future__ import annotations

import gzip
import re
from importlib.resources import files

import pytest

from deathless.shell.ingress.pages import Page, Pages

ORIGIN = b"https://bank.example:8443"
LINKS = re.compile(r'(?:href|src|data-document)="([^"]*)"')


def page(target: bytes, service: str = "bank", *, gzipped: bool = False) -> Page:
    found = Pages(service).find(target, origin=ORIGIN, gzipped=gzipped)
    assert found is not None
    return found


@pytest.mark.parametrize("target", [b"/", b"/docs", b"/docs/"])
def test_page_names_the_service_and_leads_to_nothing_elsewhere(target: bytes) -> None:
    text = page(target).body.decode()
    assert "<title>bank" in text
    links = LINKS.findall(text)
    assert links
    assert all(link.startswith("/") and not link.startswith("//") for link in links)
    for link in (link for link in links if link.startswith("/docs")):
        assert Pages("bank").find(link.encode(), origin=ORIGIN, gzipped=False) is not None


def test_example_names_the_address_by_which_the_page_was_found() -> None:
    assert b"curl https://bank.example:8443/bank/KEY/HANDLER" in page(b"/").body


def test_name_and_address_are_text_and_no_markup() -> None:
    found = Pages("<b>").find(b"/", origin=b'http://"><script>', gzipped=False)
    assert found is not None
    assert b"<b>" not in found.body
    assert b"<script>" not in found.body


@pytest.mark.parametrize("target", [b"/", b"/docs", b"/docs/docs.js", b"/docs/swagger-ui-bundle.js"])
def test_every_page_is_guarded(target: bytes) -> None:
    headers = dict(page(target).headers)
    assert headers[b"content-security-policy"].startswith(b"default-src 'self'")
    assert headers[b"x-content-type-options"] == b"nosniff"


@pytest.mark.parametrize("target", [b"/docs/swagger-ui-bundle.js", b"/docs/swagger-ui.css"])
def test_viewer_goes_compressed_to_who_takes_that(target: bytes) -> None:
    packed, plain = page(target, gzipped=True), page(target)
    assert (b"content-encoding", b"gzip") in packed.headers
    assert (b"content-encoding", b"gzip") not in plain.headers
    assert gzip.decompress(packed.body) == plain.body


@pytest.mark.parametrize("target", [b"/docs/VERSION", b"/docs/../pages.py", b"/bank", b"/docs/index.html", b""])
def test_nothing_else_is_served(target: bytes) -> None:
    assert Pages("bank").find(target, origin=ORIGIN, gzipped=True) is None


def test_viewer_comes_with_its_licence_and_version() -> None:
    folder = files("deathless.shell.ingress") / "viewer"
    assert (folder / "LICENSE").read_text().lstrip().startswith("Apache License")
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", (folder / "VERSION").read_text())
