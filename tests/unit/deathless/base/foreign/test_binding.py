"""What a manifest says of an application, and what contradicts it."""

import msgspec
import pytest

from deathless.base.foreign.binding import (
    INPUTS,
    NAME_BYTES_MAX,
    SERVICE_MODULE,
    binding_config,
    message_bytes,
)
from deathless.base.manifest import Manifest, relation_problems, replica_configs
from deathless.protocols.ambrosia.bounds import Bounds

BINDING: dict[str, object] = {"command": ["./counter", "--send={sendPort}"]}


def manifest(**spec: object) -> Manifest:
    document = {"apiVersion": "deathless.dev/v1alpha1", "kind": "DeathlessService", "metadata": {"name": "counter"}}
    return msgspec.convert({**document, "spec": spec}, Manifest)


def problems(**spec: object) -> list[tuple[str, str]]:
    return [(".".join(map(str, each.path)), each.what) for each in relation_problems(manifest(**spec))]


def test_replicas_get_the_application_and_the_topic_that_it_reads() -> None:
    """Its code is the service that comes with us."""
    found = manifest(binding={**BINDING, "environment": {"LEVEL": "2"}, "checkpointEveryBytes": "1Mi"})
    assert relation_problems(found) == []
    assert found.spec.module == SERVICE_MODULE
    for config in replica_configs(found, module=found.spec.module, directory="/d", token="", folder="/f"):
        assert config.binding is not None
        assert (config.binding.command, config.binding.instance) == (("./counter", "--send={sendPort}"), "counter")
        assert (config.binding.folder, config.binding.environment) == ("/f", {"LEVEL": "2"})
        assert config.binding.checkpoint_bytes == 1 << 20
        assert [driver.name for driver in config.drivers] == [INPUTS.name]


def test_message_of_a_mebibyte_has_room_and_a_manifest_may_say_otherwise() -> None:
    """Each of both limits bounds it."""
    sizes = []
    for limits in ({}, {"messageBytesMax": 1 << 20}, {"itemBytesMax": 1 << 18}):
        found = manifest(binding=BINDING, limits=limits)
        (config,) = replica_configs(found, module=found.spec.module, directory="/d", token="", folder="/f")[:1]
        sizes.append(message_bytes(config.make_limits()))
    assert sizes[0] > 1 << 20
    assert sizes[1] == ((1 << 20) - (64 << 10)) * 3 // 4
    assert sizes[2] == (1 << 18) - (64 << 10)


def test_application_may_have_another_name() -> None:
    """As one that was written for another set of services."""
    named = manifest(binding={**BINDING, "instanceName": "PTIServer"}).spec.binding
    config = binding_config(named, "pti", ".")
    assert config is not None
    assert config.instance == "PTIServer"
    assert binding_config(None, "pti", ".") is None


@pytest.mark.parametrize(
    ("spec", "at", "what"),
    [
        ({}, "spec.module", "is missing"),
        ({"module": "bank:bank", "binding": BINDING}, "spec.binding", "is given beside module"),
        ({"binding": BINDING, "shards": 2}, "spec.shards", "is above 1 with a binding"),
        ({"binding": BINDING, "topics": [{"name": "inputs"}]}, "spec.topics", "is the application's own"),
        (
            {"binding": BINDING, "sources": [{"name": "application", "kind": "files", "input": "x"}]},
            "spec.sources",
            "is the application's own",
        ),
        ({"binding": {"command": ["./counter", "a\0b"]}}, "spec.binding.command.1", "has a zero byte"),
        ({"binding": {**BINDING, "environment": {"A=B": "c"}}}, "spec.binding.environment", "is no name of a variable"),
        ({"binding": {**BINDING, "environment": {"A\0": "c"}}}, "spec.binding.environment", "is no name of a variable"),
        ({"binding": {**BINDING, "environment": {"A": "\0"}}}, "spec.binding.environment.A", "has a zero byte"),
        ({"binding": {**BINDING, "instanceName": "\0"}}, "spec.binding.instanceName", "has a zero byte"),
        (
            {"binding": {**BINDING, "instanceName": "ü" * 257}},
            "spec.binding.instanceName",
            "has 514 bytes, more than 512",
        ),
    ],
)
def test_what_contradicts_is_named(spec: dict[str, object], at: str, what: str) -> None:
    """With its place."""
    assert (at, what) in problems(**spec)


def test_longest_name_of_a_program_is_that_of_the_protocol() -> None:
    """And such a program may be started."""
    assert Bounds().name_bytes_max == NAME_BYTES_MAX
    longest = "ü" * (NAME_BYTES_MAX // 2)
    assert problems(binding={**BINDING, "instanceName": longest, "environment": {"Ä ": "=\n"}}) == []


@pytest.mark.parametrize("binding", [{}, {"command": []}, {"command": [""]}, {**BINDING, "protocol": "other"}])
def test_what_does_not_fit_is_refused(binding: dict[str, object]) -> None:
    """By the schema."""
    with pytest.raises(msgspec.ValidationError):
        manifest(binding=binding)
