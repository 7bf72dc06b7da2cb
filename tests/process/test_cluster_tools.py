"""lab/kubernetes.py and tools/image.py build once, hand out nothing half-made, and say in a line what is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(tool: str, cache: Path, search_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a tool with a cache and a search path of its own."""
    return subprocess.run(
        [sys.executable, str(ROOT / tool), *arguments],
        env={"XDG_CACHE_HOME": str(cache), "PATH": str(search_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def put_go(folder: Path, build: str) -> Path:
    """Put a stand-in for the Go client into a folder: it knows one module, and builds by `build` with $OUT."""
    folder.mkdir()
    go = folder / "go"
    go.write_text(f"""#!/bin/sh
case "$1 $2" in
"mod download") echo '{{"GoMod": "go.mod"}}';;
"mod edit") if [ "$3" = -json ]; then echo '{{"Go": "1.25.0", "Replace": []}}'; fi;;
"build -ldflags") OUT=$5; {build};;
esac
""")
    go.chmod(0o755)
    return folder


def where(cache: Path, name: str) -> Path:
    """Return where the tool keeps a binary."""
    told = run("lab/kubernetes.py", cache, cache, "--where", name).stdout
    return Path(told.removeprefix(f"{name} ").strip())


def test_missing_go_is_told_in_one_line_that_names_kind(tmp_path: Path) -> None:
    done = run("lab/kubernetes.py", tmp_path / "cache", tmp_path / "nothing")
    assert done.returncode == 3
    assert done.stdout.startswith("Kubernetes left out: no Go")
    assert "kind" in done.stdout
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


def test_unknown_name_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    done = run("lab/kubernetes.py", tmp_path, tmp_path, "kubelot")
    assert done.returncode == 2
    assert "unknown: kubelot" in done.stderr
    assert "kubelet" in done.stderr


def test_binary_that_was_built_is_used_and_needs_no_go(tmp_path: Path) -> None:
    go = put_go(tmp_path / "bin", "echo helm > $OUT; /bin/chmod 755 $OUT")
    first = run("lab/kubernetes.py", tmp_path / "cache", go, "helm")
    binary = where(tmp_path / "cache", "helm")
    assert (first.returncode, first.stdout) == (0, f"helm {binary}\n")
    assert "built helm" in first.stderr
    assert {one.name for one in binary.parent.iterdir()} == {"helm", ".lock"}
    second = run("lab/kubernetes.py", tmp_path / "cache", tmp_path / "nothing", "helm")
    assert (second.returncode, second.stdout, second.stderr) == (0, first.stdout, "")


def test_failed_build_says_why_and_leaves_no_binary(tmp_path: Path) -> None:
    go = put_go(tmp_path / "bin", "echo half > $OUT; echo no space >&2; exit 1")
    done = run("lab/kubernetes.py", tmp_path / "cache", go, "kubectl")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no space" in done.stderr
    assert not where(tmp_path / "cache", "kubectl").exists()


def test_image_without_its_tools_is_left_out_in_one_line(tmp_path: Path) -> None:
    done = run("tools/image.py", tmp_path / "cache", tmp_path / "nothing", "--output", str(tmp_path / "image.tar"))
    assert done.returncode == 3
    assert done.stdout.startswith("image left out: ")
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


def test_image_is_built_by_docker_where_buildah_is_not_and_appears_whole(tmp_path: Path) -> None:
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(f"""#!/bin/sh
echo "$*" >> {tmp_path}/asked
case "$1" in save) echo image > "$3"; [ "$4" != broken:1 ];; esac
""")
    docker.chmod(0o755)
    archive = tmp_path / "image.tar"
    done = run(
        "tools/image.py", tmp_path / "cache", docker.parent, "--tag", "bank:1", "--output", str(archive), str(tmp_path)
    )
    assert (done.returncode, done.stdout) == (0, f"{archive}\n")
    assert f"build --quiet --tag bank:1 --file {tmp_path}/Dockerfile {tmp_path}\n" in (tmp_path / "asked").read_text()
    archive.unlink()
    run("tools/image.py", tmp_path / "cache", docker.parent, "--target", "driver", "--output", str(archive))
    last = (tmp_path / "asked").read_text().splitlines()[-2]
    assert last.startswith("build --quiet --target driver --tag docker.io/library/deathless-driver:")
    archive.unlink()
    done = run(
        "tools/image.py",
        tmp_path / "cache",
        docker.parent,
        "--tag",
        "broken:1",
        "--output",
        str(archive),
        str(tmp_path),
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["asked", "bin"]
