"""Carries a user for each service to the chart's lock store, and asks everybody for a login once all have one.

What is known stands in one Secret of the operator's namespace, the table (`deathless-lock-users`), read and replaced by
version:

    NAMESPACE.SERVICE.drawn    a password, not carried to the lock store yet: noted first, so that no user is forgotten
    NAMESPACE.SERVICE          granted: user, role and range are there, and the operator may hand the login over
    annotation withdrawn       logins are off and stay off: the operator takes users out of templates again

Guarantees: level-triggered: each look finds what one that was cut off has left, whatever step that was. A user is
granted after the lock store has it, never before. Logins are switched on only when no StatefulSet and no pod is left
that could not log in, and in the same look every user's password is set once more; they are switched off before users
are withdrawn. The store has no user of its members' name. Does not: hand logins to services (the operator does), or
touch keys.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeVar

from deathless.base.errors import InvalidConfig
from deathless_operator.cluster.api import Object
from deathless_operator.cluster.kinds import POD, SECRET, SERVICE, STATEFUL_SET, Kind
from deathless_operator.cluster.trust import decoded, encoded, is_withdrawn
from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.service import lock_users as users
from deathless_operator.plan.service.reading import read_resource

USERS_MAX: Final = 4000
"""Users of one installation: with their passwords they stay below the megabyte that a Secret may hold."""
PASSWORD_BYTES: Final = 32  # of entropy
SHOWN_MAX: Final = 5  # names in a sentence
_DRAWN: Final = ".drawn"  # no name of a service has a dot
Read = TypeVar("Read")
_LABELS: Final = {names.LABEL_NAME: "deathless-lock-store", names.LABEL_MANAGED_BY: names.FIELD_MANAGER}


class ClusterApi(Protocol):
    """The part of `Api` that is needed here."""

    async def find(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """See `Api.find`."""
        ...

    async def read_all(
        self, kind: Kind, namespace: str | None, read: Callable[[Object], Read], *, labels: str = ""
    ) -> tuple[Read, ...]:
        """See `Api.read_all`."""
        ...

    async def create(self, manifest: Mapping[str, object]) -> Object:
        """See `Api.create`."""
        ...

    async def replace(self, manifest: Mapping[str, object]) -> Object:
        """See `Api.replace`."""
        ...


class UserStore(Protocol):
    """The part of `LockStore` that is needed here."""

    password: str

    async def logins(self) -> bool:
        """See `LockStore.logins`."""
        ...

    async def switch(self, *, on: bool) -> None:
        """See `LockStore.switch`."""
        ...

    async def may_log_in(self, user: str, password: str) -> bool:
        """See `LockStore.may_log_in`."""
        ...

    async def users(self) -> frozenset[str]:
        """See `LockStore.users`."""
        ...

    async def set_password(self, user: str, password: str) -> None:
        """See `LockStore.set_password`."""
        ...

    async def make_root(self) -> None:
        """See `LockStore.make_root`."""
        ...

    async def make_role(self, role: str, prefix: str) -> None:
        """See `LockStore.make_role`."""
        ...

    async def give_roles(self, user: str, role: str) -> None:
        """See `LockStore.give_roles`."""
        ...

    async def remove(self, user: str) -> None:
        """See `LockStore.remove`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What the table's Secret says; passwords by user."""

    granted: Mapping[str, str]
    drawn: Mapping[str, str]
    withdrawn: bool
    version: str  # empty: there is none yet

    @property
    def known(self) -> dict[str, str]:
        """All passwords."""
        return {**self.drawn, **self.granted}


class LockUsers:
    """Looks at users and services, and does what is to be done about the lock store.

    Args:
        api: the API server.
        store: the lock store; its password is set here.
        settings: namespace and endpoints of the installation.
        namespaces: whose services are looked after; empty: all.
        draw: a new password.
    """

    def __init__(
        self,
        api: ClusterApi,
        store: UserStore,
        settings: OperatorSettings,
        *,
        namespaces: tuple[str, ...] = (),
        draw: Callable[[], str] = lambda: secrets.token_urlsafe(PASSWORD_BYTES),
    ) -> None:
        self._api = api
        self._store = store
        self._settings = settings
        self._places: tuple[str | None, ...] = namespaces or (None,)
        self._draw = draw
        self._mended: set[str] = set()  # users that were found or made whole since this object is there

    async def look(self, *, withdraw: bool) -> str:
        """Look once, and do what is due; gives a sentence about how it stands.

        Args:
            withdraw: switch logins off for good, instead of handing users out.

        Raises:
            ApiUnreachable, LockUnavailable: look again.
            ApiRefused: somebody changed a Secret meanwhile: look again; or the account lacks a right.
            Unauthorized: the lock store knows another password of the administrator's user.
            InvalidConfig: the administrator's Secret holds no password, or the store has a user of its members' name.
        """
        table = await self._read()
        self._store.password = await self._administrator()
        if withdraw:
            return await self._withdraw(table)
        if table.withdrawn:
            table = await self._write(replace(table, withdrawn=False))
        return await self._hand_out(table)

    async def _withdraw(self, table: Table) -> str:
        if await self._store.logins():
            await self._store.switch(on=False)
        if not table.withdrawn:
            await self._write(replace(table, withdrawn=True))
        return "logins are off, and services go back to opening the lock store without a user"

    async def _hand_out(self, table: Table) -> str:
        resources = await self._read_all(SERVICE, read_resource)
        prefixes = users.granted(resources, self._settings)
        logins, there = await self._store.logins(), await self._store.users()
        if not logins:
            _refuse_members_name(there)
        bearers: list[users.Bearer] = []
        if not logins or users.gone(table.known, resources, ()):
            bearers = [each for kind in (STATEFUL_SET, POD) for each in await self._read_all(kind, users.read_bearer)]
            # First, so that there is room for others.
            table = await self._remove_gone(table, users.gone(table.known, resources, bearers))
        table = await self._draw_new(table, prefixes)
        left_out = sorted(prefixes.keys() - table.known.keys())
        prefixes = {user: prefix for user, prefix in prefixes.items() if user in table.known}
        for user, prefix in prefixes.items():
            if user not in self._mended or user not in there or user in table.drawn:
                await self._mend(user, prefix, table.known[user], known=logins and user in there)
                self._mended.add(user)
        new = {user: password for user, password in table.drawn.items() if user in prefixes}
        if new:
            drawn = {user: password for user, password in table.drawn.items() if user not in new}
            table = await self._write(replace(table, granted={**table.granted, **new}, drawn=drawn))
        if not logins:
            missing = users.without_user(resources, bearers, self._settings)
            if missing:
                return f"logins stay off: without a user are {_some(missing)}"
            await self._switch_on(table, prefixes)
        told = f"logins are on: {len(table.granted)} services log in, each with a user of its own"
        if left_out:
            told = (
                f"{told}. There are {USERS_MAX} users and no more, so these services get none: {_some(left_out)}. "
                "What to do: give some services an installation of their own (operator.watchNamespaces)"
            )
        return told

    async def _draw_new(self, table: Table, wanted: Iterable[str]) -> Table:
        """Draw passwords for users that have none, as many as fit; they are noted before anything is made of them."""
        room = max(0, USERS_MAX - len(table.known))
        new = {user: self._draw() for user in sorted(set(wanted) - table.known.keys())[:room]}
        if not new and table.version:
            return table
        return await self._write(replace(table, drawn={**table.drawn, **new}))

    async def _mend(self, user: str, prefix: str, password: str, *, known: bool) -> None:
        """Have a user log in with its password and read and write its own keys, and nothing else.

        Args:
            user: its name, which its role has too.
            prefix: of its keys.
            password: as handed over.
            known: it is there and may have tokens, which a change of its password would end.
        """
        await self._store.make_role(user, prefix)
        if not (known and await self._store.may_log_in(user, password)):
            await self._store.set_password(user, password)
        await self._store.give_roles(user, user)

    async def _remove_gone(self, table: Table, gone: Iterable[str]) -> Table:
        left = tuple(gone)
        for user in left:
            await self._store.remove(user)
        if not left:
            return table
        self._mended -= set(left)
        return await self._write(
            replace(
                table,
                granted={user: password for user, password in table.granted.items() if user not in left},
                drawn={user: password for user, password in table.drawn.items() if user not in left},
            )
        )

    async def _switch_on(self, table: Table, prefixes: Mapping[str, str]) -> None:
        """Have logins asked for; a store that was restored may know others than the table does."""
        for user, prefix in prefixes.items():
            await self._mend(user, prefix, table.known[user], known=False)
        await self._store.set_password(names.LOCK_ADMIN, self._store.password)
        await self._store.give_roles(names.LOCK_ADMIN, "root")
        await self._store.make_root()
        await self._store.switch(on=True)

    # ------------------------------------------------------------ the API server

    async def _read_all(self, kind: Kind, read: Callable[[Object], Read]) -> list[Read]:
        labels = "" if kind is SERVICE else names.LABEL_SERVICE
        found: list[Read] = []
        for place in self._places:
            found += await self._api.read_all(kind, place, read, labels=labels)
        return found

    async def _read(self) -> Table:
        found = await self._api.find(SECRET, self._settings.namespace, names.LOCK_USERS_SECRET)
        if found is None:
            return Table(granted={}, drawn={}, withdrawn=False, version="")
        data = {name: password.decode() for name, password in decoded(found).items()}
        return Table(
            granted={name: password for name, password in data.items() if not name.endswith(_DRAWN)},
            drawn={name.removesuffix(_DRAWN): password for name, password in data.items() if name.endswith(_DRAWN)},
            withdrawn=is_withdrawn(found),
            version=str(found["metadata"]["resourceVersion"]),
        )

    async def _write(self, table: Table) -> Table:
        data = {**table.granted, **{f"{user}{_DRAWN}": password for user, password in table.drawn.items()}}
        manifest = self._secret(names.LOCK_USERS_SECRET, data)
        if table.withdrawn:
            manifest["metadata"]["annotations"] = {names.WITHDRAWN_ANNOTATION: "true"}
        if table.version:
            manifest["metadata"]["resourceVersion"] = table.version
            written = await self._api.replace(manifest)
        else:
            written = await self._api.create(manifest)
        return replace(table, version=str(written["metadata"]["resourceVersion"]))

    async def _administrator(self) -> str:
        """Return the password of the administrator's user, drawn where there is none."""
        found = await self._api.find(SECRET, self._settings.namespace, names.LOCK_ADMIN_SECRET)
        if found is None:
            login = {"username": names.LOCK_ADMIN, "password": self._draw()}
            found = await self._api.create(self._secret(names.LOCK_ADMIN_SECRET, login))
        password = decoded(found).get("password", b"").decode()
        if not password:
            raise InvalidConfig(
                f"Secret {self._settings.namespace}/{names.LOCK_ADMIN_SECRET} holds no password",
                remedy="restore its contents; if they are lost, see docs/kubernetes/lock-store.md",
            )
        return password

    def _secret(self, name: str, data: Mapping[str, str]) -> Object:
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": {"namespace": self._settings.namespace, "name": name, "labels": _LABELS},
            "data": encoded({key: value.encode() for key, value in data.items()}),
        }


def _refuse_members_name(there: frozenset[str]) -> None:
    """Refuse a store with a user of its members' name.

    A member's gateway shows its own certificate to etcd, and where a request has no header `Accept`, etcd takes the
    common name in it for the user: one of that name would be whoever asks.
    """
    if names.LOCK_MEMBERS in there:
        raise InvalidConfig(
            f"the lock store has a user {names.LOCK_MEMBERS}, which is the common name of its members' "
            "certificates: everybody with a way in would be that user",
            remedy=f"in a member's pod: etcdctl user delete {names.LOCK_MEMBERS}",
        )


def _some(found: Sequence[str]) -> str:
    """Name the first few, and say how many more there are."""
    more = f" and {len(found) - SHOWN_MAX} more" if len(found) > SHOWN_MAX else ""
    return f"{', '.join(found[:SHOWN_MAX])}{more}"
