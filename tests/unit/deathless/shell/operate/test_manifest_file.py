"""Reading manifests: each mistake with file, line, column, field and remedy; no text that has two readings."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.errors import InvalidManifest
from deathless.shell.operate.manifest_file import BrokenManifest, plain, read_manifest

HEAD = """\
apiVersion: deathless.dev/v1alpha1
kind: DeathlessService
metadata:
  name: bank
spec:
  module: bank.py:bank
"""


def write(folder: Path, text: str) -> str:
    """Write a manifest and the module it names."""
    (folder / "bank.py").write_text("")
    path = folder / "service.yaml"
    path.write_text(text)
    return str(path)


def problems(folder: Path, text: str) -> list[str]:
    """What is told about a manifest, without the file's folder."""
    path = write(folder, text)
    with pytest.raises(InvalidManifest) as caught:
        read_manifest(path)
    return [line.replace(f"{path}:", "").replace(str(folder), "") for line in caught.value.message.splitlines()]


def test_manifest_gives_absolute_paths(tmp_path: Path) -> None:
    loaded = read_manifest(write(tmp_path, HEAD))
    assert loaded.module == f"{tmp_path}/bank.py:bank"
    assert loaded.directory == tmp_path / ".deathless" / "bank"
    assert loaded.name == "bank"
    assert [config.directory for config in loaded.replica_configs()] == [str(tmp_path / ".deathless/bank")] * 3


def test_storage_path_is_relative_to_the_manifest(tmp_path: Path) -> None:
    loaded = read_manifest(write(tmp_path, HEAD + "  logStorage: {path: ../data/x}\n"))
    assert loaded.directory == tmp_path.parent / "data" / "x"


def test_module_by_its_dotted_name_is_left_as_it_is(tmp_path: Path) -> None:
    assert read_manifest(write(tmp_path, HEAD.replace("bank.py:", "pkg.bank:"))).module == "pkg.bank:bank"


@pytest.mark.parametrize(
    ("line", "place", "what", "remedy"),
    [
        ("replicas: 9", "7:13: spec.replicas", "is the number 9", "write a whole number from 1 to 7"),
        ("replicas: three", "7:13: spec.replicas", "is the text 'three'", "write a whole number from 1 to 7"),
        ("replicaz: 3", "7:13: spec.replicaz", "is no field here", "did you mean replicas?"),
        (
            "replicas: 012",
            "7:13: spec.replicas",
            "012 is octal to some readers and decimal to others",
            "leave the leading 0 out, or quote it",
        ),
        (
            "suspend: no",
            "7:12: spec.suspend",
            "no is false to some readers and a text to others",
            "write false, or quote it",
        ),
        (
            "suspend: On",
            "7:12: spec.suspend",
            "On is true to some readers and a text to others",
            "write true, or quote it",
        ),
        ("image: 1:30", "7:10: spec.image", "1:30 is a number to base 60 to some readers", "quote it"),
        (
            "replicas: 1_0",
            "7:13: spec.replicas",
            "1_0 is a number to some readers and a text to others",
            "leave the _ out, or quote it",
        ),
        (
            "image: !!python/name:os.system x",
            "7:10: spec.image",
            "has the tag tag:yaml.org,2002:python/name:os.system",
            "leave the tag out",
        ),
        ("lock:", "7:3: spec.lock", "is empty", "write a mapping"),
        ("fence: etcd", "7:10: spec.fence", "needs lock.type etcd", "leave it out: the fence follows the lock"),
        (
            "tokenFile: nope",
            "7:14: spec.tokenFile",
            "/nope can't be read: No such file or directory",
            "write one line of at least 16 characters",
        ),
        (
            "tls: {ca: nope.pem}",
            "7:13: spec.tls.ca",
            "there is no file /nope.pem",
            "name a PEM file relative to the manifest",
        ),
        ("module: x.py:x", "7:3: spec.module", "is given twice, first in line 6", "keep one of them"),
        ("<<: {replicas: 1}", "7:3: spec", "<< (merge) is not read here", "write the fields out"),
    ],
)
def test_mistake_is_named_with_its_place(tmp_path: Path, line: str, place: str, what: str, remedy: str) -> None:
    assert problems(tmp_path, f"{HEAD}  {line}\n") == [f"{place}: {what}; {remedy}"]


def test_all_mistakes_come_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = HEAD.replace("name: bank", "name: Bank") + "  fence: off\n  replicas: 0\n  x: 1\n"
    assert [line.split(": ")[0] for line in problems(tmp_path, text)] == ["4:9", "7:10", "8:13", "9:6"]


def test_module_that_is_not_there_is_named(tmp_path: Path) -> None:
    (told,) = problems(tmp_path, HEAD.replace("bank.py", "other.py"))
    assert told.startswith("6:11: spec.module: there is no file /other.py")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "1:1: is empty"),
        (
            "a:\n\tb: 1\n",
            "2:1: can't be read: found character that cannot start any token; indent with spaces, not tabs",
        ),
        ("a: [1\n", "2:1: can't be read: did not find expected ',' or ']'; mend the YAML at this place"),
        ("- 1\n", "1:1: is a list; write a mapping"),
        ("a: &x [*x]\n", "1:4: a[0][0][0][0]: more than 50 levels; does an alias refer to itself?"),
        ("[" * 60 + "]" * 60, "1:52: [0][0][0][0][0]: more than 50 levels; does an alias refer to itself?"),
    ],
)
def test_text_that_is_no_manifest_is_refused(tmp_path: Path, text: str, told: str) -> None:
    assert problems(tmp_path, text)[0] == told


def test_aliases_that_multiply_are_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    assert "more than 50000 values" in problems(tmp_path, "\n".join(lines))[0]


def test_quoted_text_is_a_text_to_every_reader(tmp_path: Path) -> None:
    loaded = read_manifest(
        write(tmp_path, HEAD.replace("  name: bank", "  name: bank\n  labels: {a: \"no\", b: '012'}"))
    )
    assert loaded.manifest.metadata.labels == {"a": "no", "b": "012"}


def test_file_with_other_documents_gives_the_one_of_our_kind(tmp_path: Path) -> None:
    assert read_manifest(write(tmp_path, f"kind: Namespace\n---\n{HEAD}")).name == "bank"


def test_file_with_two_services_is_refused(tmp_path: Path) -> None:
    assert problems(tmp_path, f"{HEAD}---\n{HEAD}")[0].startswith("8:1: holds 2 documents of kind DeathlessService")


def test_token_is_read_and_a_short_one_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("0123456789abcdef\n")
    text = HEAD + "  tokenFile: token\n"
    assert read_manifest(write(tmp_path, text)).token == "0123456789abcdef"
    (tmp_path / "token").write_text("short\n")
    assert problems(tmp_path, text)[0].startswith("7:14: spec.tokenFile: /token holds no token")


def test_etcd_paths_become_absolute_and_are_looked_up(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("")
    lock = "  lock: {type: etcd, etcd: {passwordFile: pw, tls: {ca: ca.pem}}}\n"
    assert problems(tmp_path, HEAD + lock)[0].startswith("7:43: spec.lock.etcd.passwordFile: there is no file /pw")
    (tmp_path / "pw").write_text("x")
    (config, *_) = read_manifest(write(tmp_path, HEAD + lock)).replica_configs()
    assert config.etcd is not None
    assert config.etcd.tls is not None
    assert (config.etcd.password_file, config.etcd.tls.ca) == (f"{tmp_path}/pw", f"{tmp_path}/ca.pem")
    assert (config.lock, config.fence) == ("etcd", "etcd")


def test_fields_without_effect_here_are_said_so(tmp_path: Path) -> None:
    assert read_manifest(write(tmp_path, HEAD + "  image: x:1\n")).notes == (
        "spec.image has no effect on this machine",
    )


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a: \xc3\x28\n"])
def test_file_that_is_not_utf8_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "service.yaml"
    path.write_bytes(content)
    with pytest.raises(InvalidManifest, match=r":1:1: byte \d is not UTF-8"):
        read_manifest(path)


def test_missing_file_folder_and_huge_file_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(InvalidManifest, match="there is no such file"):
        read_manifest(tmp_path / "nope.yaml")
    with pytest.raises(InvalidManifest, match="is a folder"):
        read_manifest(tmp_path)
    (tmp_path / "huge.yaml").write_bytes(b"#" * (1 << 21))
    with pytest.raises(InvalidManifest, match="is larger than"):
        read_manifest(tmp_path / "huge.yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3), ("-3", -3), ("0", 0), ("0x1f", 31), ("0o17", 15), ("1.5", 1.5), ("1e3", 1000.0), ("true", True),
        ("False", False), ("null", None), ("~", None), ("", None), ("bank", "bank"), ("1.2.3", "1.2.3"),
        (".inf", ".inf"),
        ("2024-01-01", "2024-01-01"), ("9" * 200, "9" * 200), ("1e999", "1e999"),
    ],
)  # fmt: skip
def test_plain_scalar_is_read_as_yaml_1_2_does(text: str, value: object) -> None:
    read = plain(text)
    assert (read, type(read)) == (value, type(value))


@given(st.text(max_size=200))
def test_any_text_is_a_manifest_or_an_error_of_ours(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(InvalidManifest):
        read_manifest(path)


def test_problem_holds_the_place_for_programs(tmp_path: Path) -> None:
    with pytest.raises(BrokenManifest) as caught:
        read_manifest(write(tmp_path, HEAD + "  replicas: 9\n"))
    (found,) = caught.value.problems
    assert (found.mark.line, found.mark.column, found.problem.path) == (7, 13, ("spec", "replicas"))


PEERS = """\
  peers:
  - {name: stock, path: ../far/stock, tokenFile: stock.token}
  - {name: mail, addresses: ["10.0.0.1:7401"]}
"""


def test_a_peers_folder_and_token_are_found_from_the_manifest(tmp_path: Path) -> None:
    (tmp_path / "stock.token").write_text("s" * 16 + "\n")
    stock, mail = read_manifest(write(tmp_path, HEAD + PEERS)).replica_configs()[0].peers
    assert (stock.directory, stock.token) == (str(tmp_path.parent / "far" / "stock"), "s" * 16)
    assert (mail.directory, mail.addresses, mail.token) == ("", ("10.0.0.1:7401",), "")


def test_a_peers_token_that_can_not_be_read_is_told_with_its_place(tmp_path: Path) -> None:
    (line,) = problems(tmp_path, HEAD + PEERS)
    assert line.startswith("8:50: spec.peers[0].tokenFile: /stock.token can't be read")


def test_operators_have_a_token_of_their_own_where_the_manifest_names_one(tmp_path: Path) -> None:
    (tmp_path / "operators").write_text("operators-0123456789\n")
    text = HEAD + "  operatorTokenFile: operators\n"
    configs = read_manifest(write(tmp_path, text)).replica_configs()
    assert [(each.operator_token, each.token) for each in configs] == [("operators-0123456789", "")] * 3
    (tmp_path / "operators").write_text("short")
    assert "spec.operatorTokenFile" in problems(tmp_path, text)[0]


CALLERS = (
    HEAD
    + """  tokenFile: token
  ingress:
    authentication:
      type: Token
      token: {path: callers}
"""
)


def test_callers_tokens_are_found_beside_the_manifest(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("0123456789abcdef")
    (tmp_path / "callers").mkdir()
    configs = read_manifest(write(tmp_path, CALLERS)).replica_configs()
    found = configs[0].authentication
    assert found is not None
    assert (found.type, found.tokens) == ("Token", str(tmp_path / "callers"))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (CALLERS.replace("callers}", "nowhere}"), "spec.ingress.authentication.token.path"),
        (CALLERS.replace("path: callers", "secretRef: {name: callers}"), "spec.ingress.authentication.token"),
        (CALLERS.replace("  tokenFile: token\n", ""), "spec.tokenFile"),
        (CALLERS.replace("      token: {path: callers}\n", ""), "spec.ingress.authentication"),
        (CALLERS.replace("type: Token", "type: None"), "spec.ingress.authentication.token"),
        (CALLERS.replace("Token\n      token: {path: callers}", "MTLS"), "spec.ingress.authentication.type"),
    ],
)
def test_what_authentication_lacks_is_named(tmp_path: Path, text: str, field: str) -> None:
    (tmp_path / "token").write_text("0123456789abcdef")
    (tmp_path / "callers").mkdir()
    found = problems(tmp_path, text)
    assert any(f" {field}" in line for line in found), found


PIPELINE = """\
apiVersion: deathless.dev/v1alpha1
kind: SparkPipeline
metadata:
  name: delays
spec:
  module: bank.py:build
"""


def test_a_pipeline_is_read_as_its_service_and_its_drivers(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("0123456789abcdef\n")
    more = "  tokenFile: token\n  services: [{name: airports, path: ../a}, {name: carriers}]\n"
    loaded = read_manifest(write(tmp_path, PIPELINE + more + "  drivers: {resources: {limits: {cpu: 1}}}\n"))
    assert (loaded.name, loaded.module) == ("delays", "deathless.pipelines.service:pipeline")
    assert loaded.replica_configs()[0].peers[0].directory == str(tmp_path.parent / "a")
    [one, two] = loaded.agent_configs()
    assert (one.name, two.name, one.module) == ("d0", "d1", f"{tmp_path}/bank.py:build")
    assert (one.directory, one.token_file) == (str(tmp_path / ".deathless" / "delays"), str(tmp_path / "token"))
    assert one.services == {
        "airports": str(tmp_path.parent / "a"),
        "carriers": str(tmp_path / ".deathless" / "carriers"),
    }
    assert loaded.notes == ("spec.drivers.resources has no effect on this machine",)


def test_a_service_has_no_drivers_of_spark(tmp_path: Path) -> None:
    assert read_manifest(write(tmp_path, HEAD)).agent_configs() == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("module: other.py:build", "6:11: spec.module: there is no file /other.py"),
        ("drivers: {replicas: 99}", "7:23: spec.drivers.replicas"),
        ('conf: {spark.speculation: "true"}', "7:29: spec.conf.spark.speculation: is false in a pipeline"),
        ("services: [{name: a}, {name: b, path: b, tokenFile: t}]", "7:55: spec.services[1].tokenFile"),
        ("driver: {}", "7:3: spec.driver: is no field here; did you mean drivers?"),
    ],
)
def test_a_mistake_in_a_pipeline_is_told_at_its_place(tmp_path: Path, line: str, told: str) -> None:
    text = PIPELINE.replace("  module: bank.py:build\n", "") if line.startswith("module") else PIPELINE
    assert problems(tmp_path, f"{text}  {line}\n")[0].startswith(told)


def test_a_service_and_a_pipeline_in_one_file_are_refused(tmp_path: Path) -> None:
    found = problems(tmp_path, f"{HEAD}---\n{PIPELINE}")[0]
    assert found.startswith("8:1: holds 2 documents of kind DeathlessService or SparkPipeline")
