"""Certificates that are issued anew, and new authorities, reach every replica as it runs; callers notice nothing."""

from __future__ import annotations

import base64
import itertools
import json

import pytest
from cryptography import x509
from lab.cluster.cluster import Pod
from lab.cluster.machine import CommandFailed
from tests.cluster.installed import CALM, NAMESPACE, Lab, Ledger
from tests.cluster.pages import block, walk
from tests.cluster.under_load import called, check_no_call_failed, wait_epoch

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("deathless")]

FRONT_DOOR_PORT = 8080
SHOWN = """
import socket, ssl, sys
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=30) as plain, context.wrap_socket(plain) as door:
    print(ssl.DER_cert_to_PEM_cert(door.getpeercert(binary_form=True)))
"""
"""Prints the certificate that a port of the pod shows; whether it is trusted, callers look."""
HELD = "print(open('/etc/deathless-tls/ca.crt').read())"


def shown_by(cluster: Lab, pod: Pod) -> int:
    """The serial number of the certificate that a pod's front door shows now."""
    pem = cluster.exec(pod, "python3", "-c", SHOWN, str(FRONT_DOOR_PORT))
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def held_by(cluster: Lab, secret: str, namespace: str) -> int:
    """The serial number of the certificate in a Secret; 0 where there is none."""
    try:
        data = cluster.get("secret", secret, namespace)["data"]
    except CommandFailed:
        return 0
    return x509.load_pem_x509_certificate(base64.b64decode(data["tls.crt"])).serial_number


def issued_anew(cluster: Lab, ledger: Ledger, secret: str) -> int:
    """The serial number of what the operator puts in the place of a Secret that was deleted; waits for it.

    Of Secrets no watch tells the operator, and what it has read it remembers for seconds: so the service is touched
    again and again, for it to look before its next resync.
    """
    touches = itertools.count()

    def is_there() -> bool:
        patch = json.dumps({"metadata": {"annotations": {"tests/touched": str(next(touches))}}})
        cluster.kubectl("-n", ledger.namespace, "patch", "dls", ledger.name, "--type=merge", "-p", patch)
        return held_by(cluster, secret, ledger.namespace) != 0

    ledger.wait_for(is_there, "it is issued anew")
    return held_by(cluster, secret, ledger.namespace)


def all_show(cluster: Lab, ledger: Ledger, serial: int) -> bool:
    """Do all front doors show the certificate of that number?"""
    return {shown_by(cluster, pod) for pod in ledger.pods()} == {serial}


def authorities(pem: str) -> set[int]:
    """The serial numbers of the certificates in a bundle."""
    return {each.serial_number for each in x509.load_pem_x509_certificates(pem.encode())}


def trusted(cluster: Lab, ledger: Ledger) -> set[int]:
    """The authorities that the service's Secret names; none where there is no such Secret."""
    try:
        data = cluster.get("secret", f"{ledger.name}-tls", ledger.namespace)["data"]
    except CommandFailed:
        return set()
    return authorities(base64.b64decode(data["ca.crt"]).decode())


def all_trust(cluster: Lab, ledger: Ledger, wanted: set[int]) -> bool:
    """Do the files that all pods have mounted name exactly these authorities?"""
    found = [authorities(cluster.exec(pod, "python3", "-c", HELD)) for pod in ledger.pods()]
    return bool(found) and all(each == wanted for each in found)


def lives(ledger: Ledger) -> dict[str, int]:
    """The pods by uid, with how often their containers were started again."""
    return {pod.uid: pod.restarts for pod in ledger.pods()}


def test_certificate_that_is_issued_anew_reaches_every_front_door_and_fails_no_call(cluster: Lab) -> None:
    with Ledger(cluster, "renewed", limits=CALM) as ledger:
        secret = f"{ledger.name}-tls"
        with called(ledger, patient=True) as callers:
            old, before, epoch = held_by(cluster, secret, ledger.namespace), lives(ledger), ledger.epoch()
            assert all_show(cluster, ledger, old)
            cluster.kubectl("-n", ledger.namespace, "delete", "secret", secret)
            new = issued_anew(cluster, ledger, secret)
            assert new != old
            ledger.wait_for(lambda: all_show(cluster, ledger, new), "every front door shows the new certificate")
            callers.wait_more()
            assert (lives(ledger), ledger.epoch()) == (before, epoch), "nothing was started again for it"
        check_no_call_failed(callers)
        with called(ledger) as callers:  # all of them, and replicas among themselves, connect anew with what is new
            cluster.kill_process(ledger.primary(), "deathless.shell.worker.worker")
            wait_epoch(ledger, epoch)
            callers.wait_more()
        assert all_show(cluster, ledger, new)


def test_authority_that_was_deleted_by_hand_fails_no_call_and_no_takeover(cluster: Lab) -> None:
    with Ledger(cluster, "gone", limits=CALM) as ledger:
        with called(ledger, patient=True) as callers:  # they know the former authority alone, to the end
            shown, former = held_by(cluster, f"{ledger.name}-tls", ledger.namespace), trusted(cluster, ledger)
            before, epoch = lives(ledger), ledger.epoch()
            cluster.kubectl("-n", NAMESPACE, "delete", "secret", "deathless-ca")
            ledger.wait_for(lambda: trusted(cluster, ledger) > former, "the new authority is trusted beside the former")
            both = trusted(cluster, ledger)
            ledger.wait_for(lambda: all_trust(cluster, ledger, both), "every replica has read both")
            callers.wait_more()
            assert all_show(cluster, ledger, shown), "what the former authority signed stays"
            assert (lives(ledger), ledger.epoch()) == (before, epoch), "nothing was started again for it"
        check_no_call_failed(callers)
        with called(ledger) as callers:
            cluster.kill_process(ledger.primary(), "deathless.shell.worker.worker")
            wait_epoch(ledger, epoch)
            callers.wait_more()


def test_authority_that_was_taken_away_is_trusted_nowhere_and_the_service_goes_on(cluster: Lab) -> None:
    with Ledger(cluster, "taken", replicas=3) as ledger:
        ledger.wait_ready()
        former = trusted(cluster, ledger)
        walk(cluster, block("kubernetes/certificates.md", "An authority that is gone, or taken away"))
        ledger.wait_for(lambda: trusted(cluster, ledger).isdisjoint(former) and trusted(cluster, ledger), "it is new")
        new = trusted(cluster, ledger)
        ledger.wait_for(lambda: all_trust(cluster, ledger, new), "every replica has read it")
        shown = held_by(cluster, f"{ledger.name}-tls", ledger.namespace)
        ledger.wait_for(lambda: all_show(cluster, ledger, shown), "every front door shows what the new one signed")
        with called(ledger) as callers:
            cluster.kill_process(ledger.primary(), "deathless.shell.worker.worker")
            callers.wait_more()
