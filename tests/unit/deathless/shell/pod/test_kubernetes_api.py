"""What a replica asks of its API server: whole answers or errors, in time, with what Kubernetes has renewed."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from tests.unit.deathless.shell.api_server import api_server

from deathless.shell.pod import kubernetes_api
from deathless.shell.pod.kubernetes_api import Api, ApiError, Place


def test_pod_is_read_and_changed_over_one_kept_connection(tmp_path: Path) -> None:
    with api_server(tmp_path) as server:
        server.put("bank-0")
        api = Api(server.place)
        [*_, pod] = [api.patch_pod("bank-0", {"metadata": {"labels": {"n": str(number)}}}) for number in range(3)]
        assert pod == api.get_pod("bank-0") == server.pods["bank-0"]
        assert len(server.connections) == 1
        api.close()


def test_refusal_is_an_error_that_tells_its_status(tmp_path: Path) -> None:
    with api_server(tmp_path) as server:
        api = Api(server.place)
        with pytest.raises(ApiError) as found:
            api.get_pod("nobody")
        assert found.value.status == 404
        api.close()


def test_answer_above_the_limit_is_refused_and_the_next_one_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with api_server(tmp_path) as server:
        server.put("bank-0")
        api = Api(server.place)
        with monkeypatch.context() as patch:
            patch.setattr(kubernetes_api, "ANSWER_BYTES_MAX", 16)
            with pytest.raises(ApiError, match="more than 16 bytes; see who answers"):
                api.get_pod("bank-0")
            with pytest.raises(ApiError, match="more than 16 bytes"):
                next(api.watch_pod("bank-0"))
        assert api.get_pod("bank-0") == server.pods["bank-0"]
        api.close()


def test_token_that_was_renewed_is_used_at_once(tmp_path: Path) -> None:
    with api_server(tmp_path) as server:
        server.put("bank-0")
        api = Api(server.place)
        (tmp_path / "valid").write_text("another")
        with pytest.raises(ApiError, match="401"):
            api.get_pod("bank-0")
        (tmp_path / "token").write_text("another\n")
        assert api.get_pod("bank-0") == server.pods["bank-0"]
        api.close()


def test_kept_connection_that_went_stale_costs_no_error(tmp_path: Path) -> None:
    with api_server(tmp_path) as server:
        server.put("bank-0")
        api = Api(server.place)
        api.get_pod("bank-0")
        server.stop()
        server.start()
        assert api.get_pod("bank-0") == server.pods["bank-0"]
        server.stop()
        with pytest.raises(OSError, match="refused"):
            api.get_pod("bank-0")
        api.close()


def test_server_that_is_silent_is_not_waited_for_longer_than_said(tmp_path: Path) -> None:
    with socket.socket() as silent, api_server(tmp_path) as server:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        place = server.place
        quiet = Place("127.0.0.1", silent.getsockname()[1], "rt", place.token_file, place.ca_file)
        with pytest.raises(TimeoutError):
            Api(quiet, timeout_s=0.1).get_pod("bank-0")


def test_server_of_another_authority_is_not_believed(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with api_server(tmp_path / "one") as server, api_server(tmp_path / "two") as other:
        place = Place("127.0.0.1", server.place.port, "rt", server.place.token_file, other.place.ca_file)
        with pytest.raises(OSError, match="certificate verify failed"):
            Api(place).get_pod("bank-0")


def test_watch_gives_the_pod_and_then_its_changes(tmp_path: Path) -> None:
    with api_server(tmp_path) as server:
        server.put("bank-0")
        api = Api(server.place)
        events = api.watch_pod("bank-0")
        assert next(events) == {"type": "ADDED", "object": server.pods["bank-0"]}
        for number in "12":
            server.merge("bank-0", {"metadata": {"labels": {"n": number}}})
            assert next(events) == {"type": "MODIFIED", "object": server.pods["bank-0"]}
        events.close()  # type: ignore[attr-defined]  # a generator
        server.refuse = 410
        with pytest.raises(ApiError, match="410"):
            next(api.watch_pod("bank-0"))
        api.close()


def test_place_is_what_every_pod_is_told() -> None:
    told = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443", "POD_NAMESPACE": "rt"}
    place = Place.from_environment(told)
    assert (place.host, place.port, place.namespace) == ("10.0.0.1", 443, "rt")
    assert place.token_file.startswith("/var/run/secrets")
    with pytest.raises(KeyError, match="POD_NAMESPACE"):
        Place.from_environment({name: told[name] for name in told if name != "POD_NAMESPACE"})
