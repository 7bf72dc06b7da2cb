"""The Spark session of a driver: what we set, and what users may.

Guarantees: what exactly-once needs is set, whatever the user says. Imports pyspark.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deathless.base.errors import InvalidArgument, InvalidConfig, SparkMissing
from deathless.base.pipelines.conf import FIXED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN: Final = 17
_OF_HOME: Final = ("bin", "conf", "data", "jars", "sbin")
DEFAULTS: Final = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
"""What a driver has unless its user says otherwise."""

OURS: Final = FIXED
"""What exactly-once and speed need."""


def configuration(user: Mapping[str, str]) -> dict[str, str]:
    """Give the whole configuration. Raises: InvalidArgument for what a user may not set."""
    for name in user:
        if name in OURS and user[name] != OURS[name]:
            raise InvalidArgument(f"{name} is {OURS[name]} in a pipeline, and can't be {user[name]!r}")
    return {**DEFAULTS, **user, **OURS}


def read_conf(pairs: Iterable[str]) -> dict[str, str]:
    """Read NAME=VALUE texts of a command line. Raises: InvalidArgument."""
    found = {}
    for text in pairs:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidArgument(f"--conf takes NAME=VALUE, not {text!r}")
        found[name] = value
    return found


def java_version() -> int:
    """Give the major version of the Java that Spark would run with; 0: there is none."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin")) if home else shutil.which("java")
    if java is None:
        return 0
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', told)
    return int(found[1]) if found else 0


def check() -> None:
    """See that PySpark and a Java for it are there. Raises: SparkMissing."""
    if find_spec("pyspark") is None:
        raise SparkMissing("pipelines need PySpark, which is not installed", remedy="pip install deathless[spark]")
    version = java_version()
    if version < JAVA_MIN:
        found = f"there is Java {version}" if version else "there is no Java"
        raise SparkMissing(
            f"Spark needs Java {JAVA_MIN} or newer, and {found}", remedy="install one, or set JAVA_HOME to it"
        )


def start(name: str, user: Mapping[str, str], home: Path) -> SparkSession:
    """Start Spark in this process.

    Args:
        name: shown to people.
        user: the user's configuration.
        home: a folder that is not there yet, for `_make_home`.

    Raises: SparkMissing; InvalidConfig where Spark does not start; InvalidArgument; OSError.
    """
    conf = configuration(user)
    check()
    _make_home(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers run what the path has otherwise
    if conf["spark.master"].startswith("local"):  # nobody else is spoken to
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession  # noqa: PLC0415  an extra, which `check` has found

    builder = SparkSession.builder.appName(name)
    for key, value in conf.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        raise InvalidConfig(f"Spark did not start: {error}", remedy="its output above says why") from error


def _make_home(folder: Path) -> None:
    """Make a Spark home of links, without the archive that Python's workers would import pyspark from.

    A worker that imports from the archive compiles all of it, each time it starts. Spark gives a worker 10 s to answer,
    so on a machine with other work to do queries would not start.
    """
    folder.mkdir()
    spec = find_spec("pyspark")
    assert spec is not None, "`check` has found it"
    for package in spec.submodule_search_locations or ():
        for each in Path(package).iterdir():
            if each.name in _OF_HOME:
                (folder / each.name).symlink_to(each)
    os.environ["SPARK_HOME"] = str(folder)
    os.environ["PYTHONPATH"] = os.pathsep.join(each for each in sys.path if each)  # what workers import from
