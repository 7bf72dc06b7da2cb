"""A service is found by module or file, or the refusal says where the author's code broke."""

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from deathless.base.errors import InvalidService
from deathless.shell.service_code.loading import load_attribute, load_service

SERVICE = """
from deathless import Context, Service, Struct
class Account(Struct):
    balance: int = 0
{name} = Service("{name}", state=Account)
"""


@pytest.fixture(autouse=True)
def same_modules_after() -> Iterator[None]:
    """What a test imports is forgotten after it."""
    modules, path = dict(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - set(modules):
        del sys.modules[name]
    sys.path[:] = path


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def test_file_and_attribute(tmp_path: Path) -> None:
    path = write(tmp_path, "bank_a.py", SERVICE.format(name="bank"))
    assert load_service(f"{path}:bank").name == "bank"
    assert load_service("bank_a.py:bank", tmp_path) is load_service(f"{path}:bank")


def test_module_and_attribute(tmp_path: Path) -> None:
    write(tmp_path, "bank_b/__init__.py", "")
    write(tmp_path, "bank_b/service.py", SERVICE.format(name="bank"))
    assert load_service("bank_b.service:bank", tmp_path).name == "bank"


def test_only_service_of_a_module_needs_no_name(tmp_path: Path) -> None:
    write(tmp_path, "bank_c.py", SERVICE.format(name="bank") + "alias = bank\n")
    assert load_service("bank_c", tmp_path).name == "bank"
    assert load_service("bank_c.py", tmp_path).name == "bank"


def test_file_finds_modules_beside_it(tmp_path: Path) -> None:
    write(tmp_path, "deep/bank_helper.py", "NAME = 'bank'\n")
    write(tmp_path, "deep/bank_d.py", "from bank_helper import NAME\n" + SERVICE.format(name="bank"))
    assert load_service("deep/bank_d.py:bank", tmp_path).name == "bank"


def test_file_of_the_same_name_elsewhere_takes_its_place(tmp_path: Path) -> None:
    write(tmp_path, "one/service_e.py", SERVICE.format(name="one"))
    write(tmp_path, "two/service_e.py", SERVICE.format(name="two"))
    assert load_service("one/service_e.py", tmp_path).name == "one"
    assert load_service("two/service_e.py", tmp_path).name == "two"


@pytest.mark.parametrize("name", ["queue.py", "msgspec.py"])
def test_file_that_would_hide_another_module_is_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, SERVICE.format(name="bank"))
    with pytest.raises(InvalidService, match="another module has that name; rename"):
        load_service(name, tmp_path)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("", "names no service"),
        (":bank", "names no service"),
        ("gone.py:bank", "there is no file .*gone.py"),
        ("gone_module:bank", "there is no module 'gone_module'"),
        ("gone.module:bank", "there is no module 'gone.module'"),
        ("bank_f.py:Account", "'Account' is StructMeta, not a Service; services there: bank, shop"),
        ("bank_f.py:nothing", "'nothing' does not exist; services there: bank, shop"),
        ("bank_f.py", r"holds 2 services \(bank, shop\); name one"),
        ("empty_f.py", r"holds 0 services \(none\)"),
        ("empty_f.py:bank", "'bank' does not exist$"),
    ],
)
def test_target_that_is_no_service_is_refused(tmp_path: Path, target: str, reason: str) -> None:
    write(tmp_path, "bank_f.py", SERVICE.format(name="bank") + "shop = Service('shop', state=Account)\n")
    write(tmp_path, "empty_f.py", "")
    with pytest.raises(InvalidService, match=reason):
        load_service(target, tmp_path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "def f():\n    return 1 / 0\nf()\n",
            r"(?s)raised ZeroDivisionError: division by zero\n.*g\.py:2 in f: return 1 / 0$",
        ),
        ("x = = 1\n", r"SyntaxError: .*\n    .*g\.py:1$"),
        ("import not_installed\n", r"ModuleNotFoundError: No module named 'not_installed'\n    .*g\.py:1 in <module>"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("from deathless import Service\nService('Bad', state=int)\n", "^DL3013 service name 'Bad' must be"),
    ],
)
@pytest.mark.parametrize("target", ["broken_g.py:bank", "broken_g:bank"])
def test_import_that_raises_is_told_by_file_and_line(tmp_path: Path, target: str, text: str, reason: str) -> None:
    write(tmp_path, "broken_g.py", text)
    with pytest.raises(InvalidService, match=reason):
        load_service(target, tmp_path)
    assert "broken_g" not in sys.modules


def test_interrupt_while_importing_is_no_error_of_the_service(tmp_path: Path) -> None:
    write(tmp_path, "broken_h.py", "raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        load_service("broken_h.py", tmp_path)


def test_what_an_author_names_is_loaded_whatever_it_is(tmp_path: Path) -> None:
    write(tmp_path, "named_i.py", "def make():\n    return 5\n")
    made = load_attribute("named_i.py:make", tmp_path)
    assert callable(made)
    assert load_attribute("named_i:make", tmp_path) is made
    with pytest.raises(InvalidService, match="'other' does not exist"):
        load_attribute("named_i.py:other", tmp_path)


def test_example_service_loads() -> None:
    example = Path(__file__).parents[5] / "examples" / "bank" / "service.py"
    service = load_service(f"{example}:bank")
    assert set(service.specs) >= {"deposit", "withdraw", "transfer", "balance"}


def test_name_of_the_manifest_counts_and_the_modules_own_is_a_default(tmp_path: Path) -> None:
    text = "from deathless import Service, Struct\nclass S(Struct):\n    n: int = 0\nbank = Service('bank', state=S)\n"
    write(tmp_path, "named_j.py", text)
    assert load_service("named_j.py", tmp_path).name == "bank"
    assert load_service("named_j.py", tmp_path, name="bank-2").name == "bank-2"
