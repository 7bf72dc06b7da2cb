"""Loads a service's code: "module:attribute" or "path/to/file.py:attribute" to a Service.

The attribute may be left out where the module holds one Service. A file is imported under its stem, with its folder
first on the module path, as if Python had been started with it, so that it finds the modules beside it. All that is
the author's is imported from its text, now and later (`text_import`).

Guarantees: gives a Service or raises InvalidService that says where the author's code broke, not where ours called
it. Does not: check determinism (see check), nor keep what the module did while it was imported from doing it.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidService
from deathless.execution.author.service import Service
from deathless.shell.service_code import kept_import, text_import
from deathless.shell.service_code.code_record import FOLDER
from deathless.shell.service_code.description import differences
from deathless.shell.service_code.fingerprint import describe_code, fingerprint
from deathless.shell.service_code.kept_code import modules_in
from deathless.shell.service_code.sources import OURS, packages_of

FRAMES_SHOWN_MAX = 5

_from_files: dict[str, ModuleType] = {}
"""Modules imported by path, by name: only these may give way to another file of the same name."""

__all__ = [
    "describe_code",
    "differences",
    "fingerprint",
    "import_kept",
    "load_attribute",
    "load_configured",
    "load_kept",
    "load_service",
]


def load_service(target: str, folder: str | Path = ".", *, name: str = "") -> Service:
    """Import a service.

    Args:
        target: "module:attribute", "path/to/file.py:attribute", or either without the attribute.
        folder: what a relative path is relative to; for a dotted module it comes first on the module path.
        name: the manifest's, which the service has from then on; empty: the module's own. So one image may run as
            several services. The Service itself is renamed, so that stubs of it, which its handlers may hold, name
            this service too; a process runs one service.

    Raises: InvalidService when there is no such module, its import raises, or the attribute is no Service.
    """
    place, _, attribute = target.rpartition(":") if ":" in target else (target, "", "")
    if not place:
        raise InvalidService(f"{target!r} names no service; write module:attribute or path/to/file.py:attribute")
    folder = Path(folder).resolve()
    module = _import_file(folder / place) if place.endswith(".py") else _import_module(place, folder)
    service = _find(module, attribute, target)
    text_import.install(*packages_of(service))
    if name:
        service.name = name
    return service


def load_kept(folder: str | Path, target: str, *, name: str = "") -> Service:
    """Import a service from code that was kept with its log; this process imports the author's modules from there.

    Args:
        folder: of the kept code, see `kept_code`.
        target: as the config named it when the code was kept; files count by their names where they have moved.
        name: see `load_service`.

    Raises: FormerCodeMissing when the copy is not whole; InvalidService.
    """
    kept_import.install(modules_in(Path(folder)))
    return load_service(target, name=name)


def import_kept(config: ReplicaConfig) -> None:
    """Have this process import the author's modules from the code that the config names; as ever where it names none.

    Raises: FormerCodeMissing.
    """
    if config.code:
        kept_import.install(modules_in(Path(config.directory) / FOLDER / config.code))


def load_configured(config: ReplicaConfig, folder: str | Path = ".") -> Service:
    """Import the service that a replica runs: from its kept code, where the config names one.

    Args:
        config: the replica's.
        folder: see `load_service`.

    Raises: FormerCodeMissing, InvalidService.
    """
    import_kept(config)
    return load_service(config.module, folder, name=config.service)


def load_attribute(target: str, folder: str | Path = ".") -> object:
    """Import something that an author named: "module:attribute" or "path/to/file.py:attribute".

    Raises: InvalidService as `load_service`.
    """
    place, _, attribute = target.rpartition(":")
    folder = Path(folder).resolve()
    module = _import_file(folder / place) if place.endswith(".py") else _import_module(place, folder)
    found: object = getattr(module, attribute, None)
    if found is None:
        raise InvalidService(f"{target}: {attribute!r} does not exist")
    return found


def _import_file(path: Path) -> ModuleType:
    path = path.resolve()
    kept = kept_import.installed().stands_for(path)
    if kept:
        return _import_module(kept, path.parent)
    if not path.is_file():
        raise InvalidService(f"there is no file {path}")
    loaded = sys.modules.get(path.stem)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path):
        return loaded
    given_way = loaded is not None and _from_files.get(path.stem) is loaded
    if (loaded is not None and not given_way) or path.stem in sys.stdlib_module_names:
        raise InvalidService(
            f"{path} can't be imported as {path.stem!r}: another module has that name; rename the file"
        )
    _put_first(path.parent)
    text_import.install(path.stem)
    loader = text_import.TextLoader(path.stem, str(path))
    spec = spec_from_file_location(path.stem, path, loader=loader)
    assert spec is not None, "it has a loader"
    module = module_from_spec(spec)
    sys.modules[path.stem] = _from_files[path.stem] = module
    try:
        loader.exec_module(module)
    except BaseException as error:
        del sys.modules[path.stem]
        raise _broken(str(path), error) from error
    return module


def _import_module(name: str, folder: Path) -> ModuleType:
    _put_first(folder)
    text_import.install(*({name.partition(".")[0]} - {OURS}))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise InvalidService(f"there is no module {name!r} in {folder} or among the installed ones") from error
        raise _broken(name, error) from error
    except BaseException as error:
        raise _broken(name, error) from error


def _put_first(folder: Path) -> None:
    text = str(folder)
    if text not in sys.path:
        sys.path.insert(0, text)


def _broken(name: str, error: BaseException) -> BaseException:
    """Give the InvalidService that tells what importing `name` raised, and where; what ends the process stays."""
    if isinstance(error, KeyboardInterrupt | MemoryError):
        return error
    if isinstance(error, InvalidService):
        return InvalidService(error.message)
    lines = []
    if isinstance(error, SyntaxError):
        lines.append(f"{error.filename}:{error.lineno}")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_authors(frame.filename)]
    lines += [f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in frames[-FRAMES_SHOWN_MAX:]]
    trace = "".join(f"\n    {line}" for line in lines)
    return InvalidService(f"importing {name} raised {type(error).__name__}: {error}{trace}")


def _is_authors(filename: str) -> bool:
    return filename != __file__ and not filename.startswith("<") and Path(filename).parent.name != "importlib"


def _find(module: ModuleType, attribute: str, target: str) -> Service:
    services = {name: value for name, value in vars(module).items() if isinstance(value, Service)}
    if attribute:
        if attribute in services:
            return services[attribute]
        found: object = getattr(module, attribute, None)
        what = f"is {type(found).__name__}, not a Service" if found is not None else "does not exist"
        held = f"; services there: {', '.join(sorted(services))}" if services else ""
        raise InvalidService(f"{target}: {attribute!r} {what}{held}")
    distinct = {id(service): service for service in services.values()}
    if len(distinct) != 1:
        held = ", ".join(sorted(services)) or "none"
        raise InvalidService(f"{target} holds {len(distinct)} services ({held}); name one as {target}:attribute")
    return next(iter(distinct.values()))
