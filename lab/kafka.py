"""Install Apache Kafka from Maven's artifacts, where that is possible, and start brokers of our own from it.

Why: topics of Kafka as sources of streams are tested against a real broker, which tests kill. Its jars (43 MB), an
archive of their classes (50 MB) and the Python client (15 MB) are kept in a cache outside the tree, and put on the
module path of what needs them.

Guarantees: does nothing when all of it is there; each jar is pinned by its hash in lab/kafka.sha256, the client in
requirements-kafka.txt. A `Broker` is ended with what it left when its `with` ends or its parent dies. Does not: touch
the environment, or listen anywhere but on loopback.

Usage: python -m lab.kafka
    prints the folder for PYTHONPATH; exit code 0 = it is there, with Java and the jars; 3 = left out because this
    machine can't install it (one line says why), 1 = the installation failed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from lab import debian
from lab.ports import free_ports
from lab.server import ServerProcess

from deathless.spark.session import java_version

VERSION: Final = "4.4.0"
ARTIFACTS: Final = (("org.apache.kafka", "kafka_2.13", VERSION), ("org.slf4j", "slf4j-simple", "1.7.36"))
COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
PINS: Final = Path(__file__).resolve().parent.parent / "requirements-kafka.txt"
JARS: Final = Path(__file__).resolve().with_name("kafka.sha256")
JAVA_MIN: Final = 17
PACKAGES: Final = {"java": "openjdk-17-jre-headless", "mvn": "maven"}
JVM: Final = (
    "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)  # fmt: skip
SETTINGS: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "num.recovery.threads.per.data.dir": "1",
    # One that was killed is let in again once its former self is given up.
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "400",
    # What the cleaner does is done soon, and in a heap of this size.
    "log.initial.task.delay.ms": "200",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": "4194304",
}
"""Of a broker that is its own controller, besides its ports and its folder."""
READY_S: Final = 120.0
POLL_S: Final = 0.05


class Missing(Exception):
    """There is no Kafka here; the message is the one line to print."""


class Spoilt(Exception):
    """What was fetched is not what is pinned; the message names it."""


def folder() -> Path:
    """Return where all of it is kept, whether it is there yet or not; other pins are kept elsewhere."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    pins = hashlib.sha256(PINS.read_bytes() + JARS.read_bytes() + sys.implementation.cache_tag.encode()).hexdigest()
    return Path(base) / "deathless" / f"kafka-{VERSION}-{pins[:12]}"


def find() -> Path | None:
    """Return the folder for PYTHONPATH, beside which `lib` holds the jars; None: it is not there."""
    return folder() / "python" if _archive().is_file() else None


def _archive() -> Path:
    """Classes as a broker has them in memory, by the version of Java; made last, so where it is, all the rest is."""
    return folder() / f"classes-{java_version()}.jsa"


def _archive_classes() -> None:
    """Run a broker once and keep its classes: those that follow start in a quarter of the time."""
    with tempfile.TemporaryDirectory(prefix="classes-", dir=folder()) as scratch:
        new = Path(scratch) / "new.jsa"
        with Broker(_jvm=(f"-XX:ArchiveClassesAtExit={new}",)) as broker:
            broker.stop()
        new.replace(_archive())


def ensure() -> Path:
    """Return the folder for PYTHONPATH, installing what lacks.

    Raises: Missing, Spoilt, CalledProcessError when an installer failed.
    """
    if java_version() < JAVA_MIN:
        _install_package("java")
    found = find()
    if found is not None:
        return found
    if shutil.which("mvn") is None:
        _install_package("mvn")
    target = folder()
    if not (target / "python" / "confluent_kafka").is_dir():
        _fetch(target)
    _archive_classes()
    return target / "python"


def _fetch(target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    print(f"Installing Kafka {VERSION} (60 MB)", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="kafka-", dir=target.parent) as scratch:
        new = Path(scratch) / "new"
        _fetch_jars(Path(scratch), new / "lib")
        arguments = ["--quiet", "--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--no-deps"]
        pip = [sys.executable, "-m", "pip", "install", *arguments, "--require-hashes", "-r", str(PINS)]
        subprocess.run([*pip, "--target", str(new / "python")], check=True, stdout=sys.stderr)
        new.rename(target)


def _fetch_jars(scratch: Path, target: Path) -> None:
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        for group, name, version in ARTIFACTS
    )
    project = "<modelVersion>4.0.0</modelVersion><groupId>lab</groupId><artifactId>lab</artifactId><version>1</version>"
    (scratch / "pom.xml").write_text(
        f"<project>{project}<dependencies>{wanted}</dependencies></project>", encoding="utf-8"
    )
    maven = [
        "mvn",
        "-B",
        "-q",
        "-Dstyle.color=never",
        "-f",
        str(scratch / "pom.xml"),
        COPY,
        f"-DoutputDirectory={target}",
    ]
    subprocess.run(maven, check=True, stdout=sys.stderr)
    pinned = {name: pin for pin, name in (line.split() for line in JARS.read_text("ascii").splitlines())}
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in target.iterdir()}
    if found != pinned:
        differing = sorted(name for name in pinned.keys() | found.keys() if pinned.get(name) != found.get(name))
        raise Spoilt(f"Kafka: {', '.join(differing)} differ from {JARS.name}")


def _install_package(program: str) -> None:
    """Install Debian's package. Raises: Missing, CalledProcessError."""
    try:
        debian.install(PACKAGES[program])
    except debian.CannotInstall as why:
        raise Missing(f"Kafka left out: it needs Java {JAVA_MIN} and Maven; {why}") from None


class Broker(ServerProcess):
    """One broker, which is its own controller, with a folder and two ports of its own.

    Args:
        settings: of server.properties, beside `SETTINGS`.
        protocol: that clients speak: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        _jvm: for the first start, which makes the archive of classes.

    Raises: Missing.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        protocol: str = "PLAINTEXT",
        _jvm: tuple[str, ...] = (),
    ) -> None:
        if not _jvm and (java_version() < JAVA_MIN or find() is None):
            raise Missing(f"Kafka left out: it is not installed ({Path(__file__).name} installs it)")
        self._jvm = _jvm or (f"-XX:SharedArchiveFile={_archive()}",)
        super().__init__("Kafka", "deathless-kafka-", ready_s=READY_S, poll_s=POLL_S)
        self._port, controller = free_ports(2)
        own = {
            "listeners": f"{protocol}://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{controller}",
            "security.inter.broker.protocol": protocol,
            "listener.security.protocol.map": f"{protocol}:{protocol},CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(self.data),
        }
        text = "".join(f"{name}={value}\n" for name, value in {**SETTINGS, **own, **(settings or {})}.items())
        self._properties.write_text(text, encoding="utf-8")

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    @property
    def data(self) -> Path:
        """Where its records are; whoever copies it stops the broker first."""
        return self.folder / "data"

    @property
    def address(self) -> str:
        """What clients take as `bootstrap.servers`."""
        return f"127.0.0.1:{self._port}"

    def create(self) -> None:
        """See ServerProcess: its folder is formatted."""
        cluster = "AAAAAAAAAAAAAAAAAAAAAQ"  # an id like any other
        tool = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._properties)]
        made = subprocess.run([*_java(()), *tool], capture_output=True, text=True, cwd=self.folder, check=False)
        if made.returncode != 0:
            raise RuntimeError(f"formatting a broker's folder failed: {(made.stdout + made.stderr).strip()[-500:]}")

    def command(self) -> Sequence[str]:
        """See ServerProcess."""
        return [*_java(self._jvm), "kafka.Kafka", str(self._properties)]

    def answers(self) -> bool:
        """See ServerProcess: it listens last."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=1):
            return True
        return False


def _java(more: tuple[str, ...]) -> list[str]:
    home = os.environ.get("JAVA_HOME")
    jars = ":".join(sorted(map(str, (folder() / "lib").glob("*.jar"))))  # in the order that the archive was made with
    return [os.path.join(home, "bin", "java") if home else "java", *JVM, *more, "-cp", jars]


def main() -> int:
    """Install; see the module's docstring for output and exit codes."""
    try:
        print(ensure())
    except Missing as missing:
        print(missing)
        return 3
    except (Spoilt, RuntimeError) as failed:
        print(failed, file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as ended:
        print(f"{' '.join(map(str, ended.cmd))} ended with {ended.returncode}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
