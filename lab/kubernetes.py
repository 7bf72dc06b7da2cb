#!/usr/bin/env python3
"""Build a real Kubernetes from its Go modules, once, into a cache.

Why it exists: the tests of `tests/cluster` run on a real API server, scheduler, controller manager, kubelet and
kube-proxy, also on a machine without a Docker engine; some of `tests/apiserver` on cert-manager. Distributions ship
none of them, so they are built with the ordinary Go client, which checks every module against the checksum database:
about ten minutes on two idle cores from an empty cache (two of them for cert-manager), nothing afterwards. So are helm,
which renders the charts, `alert-tests`, which evaluates their alert rules as Prometheus does (half a minute), and
`linearizability`, which judges histories of calls. The
prometheus-operator's kinds are copied out of its module when a test asks for them.

What it guarantees: a binary appears under its final name only when complete (written under a temporary name, then
renamed). A binary that is there is never rebuilt; its version is part of its path. Two builds at once wait for each
other. Nothing is written inside the source tree or onto the search path. Where Go is missing nothing is built and one
plain line says so.

What it does not: install anything, start anything, or need root.

Usage: lab/kubernetes.py [--where] [NAME ...]
    builds what is named (default: all of it) and prints a line `NAME PATH` each; progress goes to stderr.
    Exit code 0 = all there, 3 = left out because Go is missing, 1 = a build failed (its output is on stderr).
    --where prints the paths and builds nothing.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

#: Kubernetes 1.35 is the last release that supports both cgroup v1 and containerd 1.x, which Debian 12 ships.
KUBERNETES_VERSION = "1.35.0"
HELM_VERSION = "3.22.0"
COREDNS_VERSION = "1.14.7"
CERT_MANAGER_VERSION = "1.21.2"
PROMETHEUS_OPERATOR_VERSION = "0.85.0"  # the newest that the Go module proxy serves
_PROMETHEUS_OPERATOR = "github.com/prometheus-operator/prometheus-operator"
PROMETHEUS_VERSION = "0.316.0"  # of its Go module: Prometheus 3.16

# promtool links every cloud whose machines Prometheus can find. This needs the query engine and the templates alone.
_ALERT_TESTS_MAIN = Path(__file__).with_name("alert_tests.go")

# Judges histories of the torture runs (tests/torture).
PORCUPINE_VERSION = "1.3.1"
_LINEARIZABILITY_MAIN = Path(__file__).with_name("linearizability.go")

#: The one line that stands in for every test that needs these binaries where Go is missing.
GO_MISSING = (
    "Kubernetes left out: no Go compiler (`go`) on the search path to build it with; install Go, or a Docker engine "
    "and kind"
)

#: A cold build of the API server takes three minutes on two idle cores; a loaded machine gets this long for each.
_BUILD_TIMEOUT_S = 3600

# A main program with the plugins that a cluster needs.
_COREDNS_MAIN = Path(__file__).with_name("coredns.go")

# cert-manager's own main program is a module that no proxy serves (its path is not where it lies), and it links seven
# clouds. This one runs the same controllers, with the issuers that need nobody outside: CA and SelfSigned.
_CERT_MANAGER_MAIN = """\
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/cert-manager/cert-manager/pkg/controller"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
)

func run() error {
	kubeconfig := flag.String("kubeconfig", "", "of the API server")
	namespace := flag.String("cluster-resource-namespace", "cert-manager", "of the Secrets of ClusterIssuers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	options := controller.ContextOptions{Kubeconfig: *kubeconfig}
	options.ClusterResourceNamespace = *namespace
	options.CertificateRequestMinimumBackoffDuration = time.Hour
	options.CertificateRequestMaximumBackoffDuration = 32 * time.Hour
	factory, err := controller.NewContextFactory(ctx, options)
	if err != nil {
		return err
	}
	shared, err := factory.Build()
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	for name, constructor := range controller.Known() {
		one, err := constructor(factory)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		running.Go(func() {
			if err := one.Run(2, ctx); err != nil {
				fmt.Fprintf(os.Stderr, "%s: %v\\n", name, err)
				stop()
			}
		})
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	running.Wait()
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
"""


def _load_etcd_tool() -> ModuleType:
    """Return lab/etcd.py, which lies beside this file; neither folder nor file is a package."""
    spec = importlib.util.spec_from_file_location("deathless_tools_etcd", Path(__file__).with_name("etcd.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_etcd_tool = _load_etcd_tool()
ETCD_VERSION: str = _etcd_tool.VERSION


class GoMissing(Exception):
    """A binary is not in the cache and there is no Go compiler to build it."""


class BuildFailed(Exception):
    """The Go client refused to build something; the message holds its output."""


def _kept(family: str, version: str) -> Path:
    """Return the folder of the cache that holds a version of something."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "deathless" / f"{family}-{version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """One program and how it is built."""

    name: str  # of the file, and on this tool's command line
    family: str  # binaries of one family share a Go module and a version
    version: str  # of the family, without a leading `v`
    package: str  # Go import path of its main package
    settings: tuple[str, ...] = ()  # `-X` settings of the linker: path.variable=value

    @property
    def path(self) -> Path:
        """Where it is kept, whether it is there yet or not."""
        return _kept(self.family, self.version) / self.name

    @property
    def there(self) -> bool:
        """True when it was built before."""
        return self.path.is_file() and os.access(self.path, os.X_OK)


def _version_settings() -> tuple[str, ...]:
    """Return the linker settings that make Kubernetes tell its version; helm and the feature gates read it."""
    major, minor, _ = KUBERNETES_VERSION.split(".")
    values = {
        "gitVersion": f"v{KUBERNETES_VERSION}",
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return tuple(f"{package}.{name}={value}" for package in packages for name, value in values.items())


KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")

BINARIES: dict[str, Binary] = {
    name: Binary(
        name=name,
        family="kubernetes",
        version=KUBERNETES_VERSION,
        package=f"k8s.io/kubernetes/cmd/{name}",
        settings=_version_settings(),
    )
    for name in KUBERNETES
} | {
    "helm": Binary(
        name="helm",
        family="helm",
        version=HELM_VERSION,
        package="helm.sh/helm/v3/cmd/helm",
        settings=(f"helm.sh/helm/v3/internal/version.version=v{HELM_VERSION}",),
    ),
    "coredns": Binary(name="coredns", family="coredns", version=COREDNS_VERSION, package="."),
    "cert-manager": Binary(name="cert-manager", family="cert-manager", version=CERT_MANAGER_VERSION, package="."),
    "alert-tests": Binary(
        name="alert-tests",
        family="alert-tests",
        version=f"{PROMETHEUS_VERSION}-{hashlib.sha256(_ALERT_TESTS_MAIN.read_bytes()).hexdigest()[:12]}",
        package=".",
    ),
    "linearizability": Binary(
        name="linearizability",
        family="linearizability",
        version=f"{PORCUPINE_VERSION}-{hashlib.sha256(_LINEARIZABILITY_MAIN.read_bytes()).hexdigest()[:12]}",
        package=".",
    ),
    "etcd": Binary(name="etcd", family="etcd", version=ETCD_VERSION, package="go.etcd.io/etcd/server/v3"),
    "etcdctl": Binary(name="etcdctl", family="etcd", version=ETCD_VERSION, package="go.etcd.io/etcd/etcdctl/v3"),
}


class _Module:
    """A Go module of our own in a scratch folder, which requires what is to be built.

    `go install package@version` refuses modules with `replace` lines, and those of a dependency do not count, so a
    module of our own requires the real one, takes over its Go version and replaces what has to be replaced.
    """

    def __init__(self, go: str, folder: Path) -> None:
        self._go = go
        self.folder = folder
        self._environment = os.environ | {
            "CGO_ENABLED": "0",
            "GOFLAGS": "-mod=mod -trimpath -buildvcs=false",
            "GOWORK": "off",
        }

    def run(self, *arguments: str) -> str:
        """Run the Go client here and return its output.

        Raises:
            BuildFailed: it failed, or took longer than _BUILD_TIMEOUT_S.
        """
        words = f"go {' '.join(arguments[:2])}"
        try:
            done = subprocess.run(
                [self._go, *arguments],
                cwd=self.folder,
                env=self._environment,
                capture_output=True,
                text=True,
                timeout=_BUILD_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            raise BuildFailed(f"{words}: no end within {_BUILD_TIMEOUT_S} s") from late
        if done.returncode != 0:
            raise BuildFailed(f"{words} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def require(self, name: str, module: str, version: str) -> None:
        """Write a go.mod that requires `module` and takes over the Go version it asks for."""
        self.run("mod", "init", f"deathless.invalid/{name}")
        described = self.describe(module, version)
        self.run("mod", "edit", f"-go={described['Go']}", f"-require={module}@v{version}")

    def describe(self, module: str, version: str) -> dict[str, object]:
        """Return the go.mod of a module's version, as `go mod edit -json` tells it."""
        downloaded = json.loads(self.run("mod", "download", "-json", f"{module}@v{version}"))
        described: dict[str, object] = json.loads(self.run("mod", "edit", "-json", downloaded["GoMod"]))
        return described

    def build(self, binary: Binary) -> Path:
        """Build one program and return its path in the scratch folder."""
        flags = ["-s", "-w", *(part for setting in binary.settings for part in ("-X", setting))]
        self.run("build", "-ldflags", " ".join(flags), "-o", binary.name, binary.package)
        return self.folder / binary.name


def _prepare_kubernetes(module: _Module) -> None:
    """Require k8s.io/kubernetes, with its staging modules replaced by those that were published beside it.

    It requires them as v0.0.0 and replaces them by folders of its own repository.
    """
    module.require("kubernetes", "k8s.io/kubernetes", KUBERNETES_VERSION)
    described = module.describe("k8s.io/kubernetes", KUBERNETES_VERSION)
    replaced = described["Replace"]
    assert isinstance(replaced, list)
    published = f"v0.{KUBERNETES_VERSION.removeprefix('1.')}"
    staging = [one["Old"]["Path"] for one in replaced if one["New"]["Path"].startswith("./staging/")]
    module.run("mod", "edit", *(f"-replace={path}={path}@{published}" for path in staging))


def _prepare_coredns(module: _Module) -> None:
    """Require CoreDNS and write a main program with the plugins that a cluster needs."""
    module.require("coredns", "github.com/coredns/coredns", COREDNS_VERSION)
    (module.folder / "main.go").write_bytes(_COREDNS_MAIN.read_bytes())


def _prepare_etcd(module: _Module) -> None:
    """Require etcd's command line; its server is built by lab/etcd.py."""
    module.require("etcd", "go.etcd.io/etcd/etcdctl/v3", ETCD_VERSION)


def _prepare_helm(module: _Module) -> None:
    """Require helm."""
    module.require("helm", "helm.sh/helm/v3", HELM_VERSION)


def _prepare_cert_manager(module: _Module) -> None:
    """Require cert-manager, write a main program, and keep its CRDs beside the binary that is to come."""
    name = "github.com/cert-manager/cert-manager"
    module.require("cert-manager", name, CERT_MANAGER_VERSION)
    (module.folder / "main.go").write_text(_CERT_MANAGER_MAIN)
    _copy_crds(module, f"{name}@v{CERT_MANAGER_VERSION}", "deploy/crds", cert_manager_crds())


def _prepare_alert_tests(module: _Module) -> None:
    """Require Prometheus and take over our main program; its contents are part of the version."""
    module.require("alert-tests", "github.com/prometheus/prometheus", PROMETHEUS_VERSION)
    (module.folder / "main.go").write_bytes(_ALERT_TESTS_MAIN.read_bytes())


def _prepare_linearizability(module: _Module) -> None:
    """Require porcupine and take over our main program; its contents are part of the version."""
    module.require("linearizability", "github.com/anishathalye/porcupine", PORCUPINE_VERSION)
    module.run("mod", "edit", "-go=1.21")  # it asks for less than our program does
    (module.folder / "main.go").write_bytes(_LINEARIZABILITY_MAIN.read_bytes())


def cert_manager_crds() -> Path:
    """Return the folder with the CRDs of the cert-manager that was built; they are there when the binary is."""
    return BINARIES["cert-manager"].path.with_name("crds")


def prometheus_operator_crds() -> Path:
    """Return the folder with the CRDs of the prometheus-operator, fetched when it is missing. Raises: as `ensure`."""
    folder = _kept("prometheus-operator", PROMETHEUS_OPERATOR_VERSION)
    kept = folder / "crds"
    if kept.is_dir():
        return kept
    go = shutil.which("go")
    if go is None:
        raise GoMissing(GO_MISSING)
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder, lambda _: None), tempfile.TemporaryDirectory(prefix="build-", dir=folder) as scratch:
        made, module = Path(scratch, "crds"), f"{_PROMETHEUS_OPERATOR}@v{PROMETHEUS_OPERATOR_VERSION}"
        _copy_crds(_Module(go, Path(scratch)), module, "example/prometheus-operator-crd", made)
        if not kept.is_dir():
            made.rename(kept)
    return kept


def _copy_crds(module: _Module, source: str, inside: str, kept: Path) -> None:
    """Copy the YAML files in a folder of the module `source`, as NAME@VERSION, to a folder of their own."""
    downloaded = json.loads(module.run("mod", "download", "-json", source))
    kept.mkdir(exist_ok=True)
    for path in Path(downloaded["Dir"], inside).glob("*.yaml"):
        (kept / path.name).write_text(path.read_text())


_PREPARE: dict[str, Callable[[_Module], None]] = {
    "kubernetes": _prepare_kubernetes,
    "coredns": _prepare_coredns,
    "etcd": _prepare_etcd,
    "helm": _prepare_helm,
    "cert-manager": _prepare_cert_manager,
    "alert-tests": _prepare_alert_tests,
    "linearizability": _prepare_linearizability,
}


def ensure(*names: str, progress: Callable[[str], None] | None = None) -> dict[str, Path]:
    """Return the paths of the named binaries (all when none is named), building what is missing.

    Args:
        names: keys of BINARIES.
        progress: gets one line before and after each build.

    Raises:
        GoMissing: something is not cached and there is no Go compiler; say so and leave the tests out.
        BuildFailed: a build was tried and failed; its output is the message.
    """
    wanted = [BINARIES[name] for name in names or BINARIES]
    say = progress or (lambda _: None)
    if any(not one.there for one in wanted):
        go = shutil.which("go")
        if go is None:
            raise GoMissing(GO_MISSING)
        for family in dict.fromkeys(one.family for one in wanted if not one.there):
            _build_family(go, family, [one for one in wanted if one.family == family], say)
    return {one.name: one.path for one in wanted}


def _build_family(go: str, family: str, binaries: Sequence[Binary], say: Callable[[str], None]) -> None:
    """Build those of a family's binaries that are missing, one after the other: each uses every core."""
    folder = binaries[0].path.parent
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder, say), tempfile.TemporaryDirectory(prefix="build-", dir=folder) as scratch:
        missing = [one for one in binaries if not one.there]
        module: _Module | None = None
        for one in missing:
            started = time.monotonic()
            say(f"building {one.name} {one.version}")
            if one.name == "etcd":
                _ensure_etcd()
            else:
                if module is None:
                    module = _Module(go, Path(scratch))
                    _PREPARE[family](module)
                os.replace(module.build(one), one.path)
            size_mb = one.path.stat().st_size / 1e6
            say(f"built {one.name}: {time.monotonic() - started:.0f} s, {size_mb:.0f} MB")


def _ensure_etcd() -> None:
    """Have lab/etcd.py build the server, and translate what it may say."""
    try:
        _etcd_tool.ensure()
    except _etcd_tool.BuildFailed as failed:
        raise BuildFailed(str(failed)) from failed


@contextmanager
def _alone(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Let one build per folder run at a time; the second finds the first one's work."""
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another build in {folder}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(arguments: list[str] | None = None) -> int:
    """Run the tool; see the module's docstring for output and exit codes."""
    parser = argparse.ArgumentParser(description="Build (once) the Kubernetes that the cluster tests use.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to build: {', '.join(BINARIES)} (default: all)")
    parser.add_argument("--where", action="store_true", help="print the paths only, build nothing")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - BINARIES.keys())
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(BINARIES)}")
    if options.where:
        paths = {name: BINARIES[name].path for name in options.names or BINARIES}
    else:
        try:
            paths = ensure(*options.names, progress=lambda line: print(line, file=sys.stderr, flush=True))
        except GoMissing as missing:
            print(missing)
            return 3
        except BuildFailed as failed:
            print(failed, file=sys.stderr)
            return 1
    for name, path in paths.items():
        print(name, path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
