"""An API server's Secrets and lists, and an etcd's users, for `lock-users` that is cut off after any change.

Guarantees: versions of Secrets as the API server keeps them; etcd's rules about users as test_lock_users.py of
tests/process shows them of a real one; what breaks a rule is told as it is done (`Broken`). Does not: know what it
tests.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from deathless_operator.cluster.errors import Conflict
from deathless_operator.cluster.kinds import SECRET, Kind
from deathless_operator.cluster.trust import decoded, is_withdrawn
from deathless_operator.model import names

HOME = "deathless-system"
Read = TypeVar("Read")


class Broken(AssertionError):
    """A rule was broken."""


class Cut(Exception):
    """The process died."""


class Fuse:
    """Lets so many changes through; None: all."""

    def __init__(self) -> None:
        self.left: int | None = None

    def burn(self) -> None:
        """Count a change. Raises: Cut."""
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Cut


class Cluster:
    """What the API server holds."""

    def __init__(self, fuse: Fuse) -> None:
        self.fuse = fuse
        self.secrets: dict[str, dict[str, Any]] = {}
        self.objects: dict[str, list[dict[str, Any]]] = {"DeathlessService": [], "StatefulSet": [], "Pod": []}
        self.listed: list[tuple[str, str | None]] = []
        self.writes = 0

    async def find(self, kind: Kind, namespace: str | None, name: str) -> dict[str, Any] | None:
        assert (kind, namespace) == (SECRET, HOME)
        return copy.deepcopy(self.secrets.get(name))

    async def read_all(
        self, kind: Kind, namespace: str | None, read: Callable[[dict[str, Any]], Read], *, labels: str = ""
    ) -> tuple[Read, ...]:
        self.listed.append((kind.kind, namespace))
        assert labels == ("" if kind.kind == "DeathlessService" else names.LABEL_SERVICE)
        found = [each for each in self.objects[kind.kind] if namespace in (None, each["metadata"]["namespace"])]
        return tuple(read(copy.deepcopy(each) | {"kind": kind.kind}) for each in found)

    async def create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        if manifest["metadata"]["name"] in self.secrets:
            raise Conflict("it is there", status=409)
        return self._write(manifest)

    async def replace(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        before = self.secrets[manifest["metadata"]["name"]]
        if manifest["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]:
            raise Conflict("it was changed", status=409)
        return self._write(manifest)

    def _write(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        self.fuse.burn()
        self.writes += 1
        written = copy.deepcopy(dict(manifest))
        written["metadata"]["resourceVersion"] = str(self.writes)
        self.secrets[written["metadata"]["name"]] = written
        return copy.deepcopy(written)

    def table(self) -> dict[str, str]:
        """What the table holds."""
        return {name: value.decode() for name, value in decoded(self.secrets.get(names.LOCK_USERS_SECRET, {})).items()}

    def granted(self) -> dict[str, str]:
        """Passwords of users that may be handed over."""
        return {name: value for name, value in self.table().items() if not name.endswith(".drawn")}

    @property
    def withdrawn(self) -> bool:
        """Whether services go back."""
        table = self.secrets.get(names.LOCK_USERS_SECRET)
        return table is not None and is_withdrawn(table)


class Store:
    """An etcd's users and roles."""

    def __init__(self, fuse: Fuse) -> None:
        self.fuse = fuse
        self.password = ""
        self.on = False
        self.passwords: dict[str, str] = {}
        self.ranges: dict[str, str] = {}  # of roles
        self.roles: dict[str, str] = {}  # of users
        self.changed: list[str] = []  # users whose tokens were ended

    def _admit(self) -> None:
        if self.on and self.passwords.get(names.LOCK_ADMIN) != self.password:
            raise Broken("the administrator can't log in")

    def _change(self) -> None:
        self._admit()
        self.fuse.burn()

    async def logins(self) -> bool:
        return self.on

    async def switch(self, *, on: bool) -> None:
        self._change()
        if on and not (self.roles.get("root") == "root" and self.roles.get(names.LOCK_ADMIN) == "root"):
            raise Broken("etcd refuses: there is no root")
        self.on = on

    async def may_log_in(self, user: str, password: str) -> bool:
        if not self.on:
            raise Broken("authentication is not enabled")
        return self.passwords.get(user) == password

    async def users(self) -> frozenset[str]:
        self._admit()
        return frozenset(self.passwords)

    async def set_password(self, user: str, password: str) -> None:
        self._change()
        if self.on and user in self.passwords:
            self.changed.append(user)
        self.passwords[user] = password

    async def make_root(self) -> None:
        self._change()
        self.passwords.setdefault("root", "")
        self.roles["root"] = "root"

    async def make_role(self, role: str, prefix: str) -> None:
        self._change()
        self.ranges[role] = prefix

    async def give_roles(self, user: str, role: str) -> None:
        self._change()
        if user not in self.passwords or (role != "root" and role not in self.ranges):
            raise Broken(f"etcd knows no user {user} or no role {role}")
        self.roles[user] = role

    async def remove(self, user: str) -> None:
        self._change()
        self.remove_all(user)

    def remove_all(self, user: str) -> None:
        """Hold nothing of a user."""
        for held in (self.passwords, self.ranges, self.roles):
            held.pop(user, None)

    def serves(self, user: str, password: str) -> bool:
        """Whether a pod with this login is let in to its own keys."""
        namespace, _, name = user.partition(".")
        keys = f"/deathless/{namespace}/{name}/"
        return self.passwords.get(user) == password and self.ranges.get(self.roles.get(user, "")) == keys


def service(
    namespace: str, name: str, *, installation: str = HOME, etcd: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A DeathlessService, as it is listed: without kind."""
    spec: dict[str, Any] = {"module": "bank:bank", "image": "bank:1", "logStorage": {"claimName": "log"}}
    if etcd is not None:
        spec["lock"] = {"etcd": dict(etcd)}
    return {
        "metadata": {"namespace": namespace, "name": name, "uid": f"uid-{namespace}-{name}"},
        "spec": spec,
        "status": {"installation": installation},
    }


def bearer(namespace: str, service_name: str, name: str, secrets: Iterable[str], **more: Any) -> dict[str, Any]:
    """A pod that mounts Secrets, as it is listed."""
    volumes = [{"name": f"v{index}", "secret": {"secretName": secret}} for index, secret in enumerate(secrets)]
    return {
        "metadata": {"namespace": namespace, "name": name, "labels": {names.LABEL_SERVICE: service_name}, **more},
        "spec": {"volumes": volumes},
    }


def stateful_set(namespace: str, name: str, secrets: Iterable[str], *, observed: int = 1) -> dict[str, Any]:
    """A StatefulSet whose pods mount Secrets, as it is listed."""
    pod = bearer(namespace, name, name, secrets)
    metadata = pod["metadata"] | {"generation": 1}
    return {
        "metadata": metadata,
        "spec": {"template": {"spec": pod["spec"]}},
        "status": {"observedGeneration": observed},
    }
