"""Certificates of a service that are issued anew are shown by every replica as it runs; callers notice nothing."""

from __future__ import annotations

import base64
import itertools
import json

import pytest
from cryptography import x509
from tests.cluster.installed import CALM, Lab, Ledger
from tests.cluster.lab.cluster import Pod
from tests.cluster.lab.machine import CommandFailed
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
            cluster.kill_process(ledger.primary(), "deathless.shell.worker")
            wait_epoch(ledger, epoch)
            callers.wait_more()
        assert all_show(cluster, ledger, new)
