"""Writes crds/*.yaml from the typed models; `--check` only tells whether they are up to date.

python tools/crds.py            write
python tools/crds.py --check    exit 1 and name the files that differ
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from deathless_operator.model.crd import DEFINITIONS, Definition, make_crd
from deathless_operator.model.names import GROUP

FOLDER = Path(__file__).resolve().parent.parent / "crds"


class _Dumper(yaml.SafeDumper):
    """Repeats what is equal instead of referring to it: anchors are hard to read in a diff."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def file_name(definition: Definition) -> str:
    """Name the file of a CRD."""
    return f"{GROUP}_{definition.plural}.yaml"


def render(definition: Definition) -> str:
    """Give a CRD as YAML."""
    body: str = yaml.dump(make_crd(definition), Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
    return f"# Made by tools/crds.py from deathless_operator.model; change the models, not this file.\n{body}"


def differing(folder: Path = FOLDER) -> list[str]:
    """Name what in `folder` is not as the models have it; files of no model included."""
    wanted = {file_name(definition): render(definition) for definition in DEFINITIONS}
    found = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.yaml")}
    return sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))


def main(arguments: list[str]) -> int:
    """Write, or check."""
    if arguments == ["--check"]:
        for name in differing():
            print(f"crds/{name} is not as the models have it: run python tools/crds.py")
        return 1 if differing() else 0
    FOLDER.mkdir(exist_ok=True)
    for definition in DEFINITIONS:
        (FOLDER / file_name(definition)).write_text(render(definition), encoding="utf-8")
        print(f"crds/{file_name(definition)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
