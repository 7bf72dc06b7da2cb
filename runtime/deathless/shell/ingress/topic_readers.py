"""Who may read a topic over HTTP.

    readers: [reports]     the caller of that name: of its token, of its certificate, or as an issuer calls it
    readers: ["*"]         everybody whom the ingress lets in
    nobody named           operators, and who shows what the client port asks of tools

A client certificate that nobody named is not enough, even where it is all that tools show: an authority signs for
programs that have nothing to do with this service's rows. On a machine whose ingress listens on the loopback interface
and asks for nothing, whoever can reach it is an operator already.

Guarantees: who may not read a topic is not told whether there is one of that name. Does not: say who calls (`callers`
does). Imports base.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from deathless.base.config import ReplicaConfig
from deathless.base.errors import TopicNotReadable, UnknownHandler
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.base.topics.settings import EVERYBODY, readers_of
from deathless.shell.ingress.callers import Admitted
from deathless.shell.ingress.operators import Operators, refusal_to_callers


class TopicReaders:
    """Says who may read which topic.

    Args:
        readers: names, by topic.
        operators: who may read all.
        tools: what callers show is what tools show, and more than a certificate.
        safeguards: what is kept.
    """

    def __init__(
        self,
        readers: Mapping[str, AbstractSet[str]],
        operators: Operators,
        *,
        tools: bool = False,
        safeguards: Safeguards = ALL_SAFEGUARDS,
    ) -> None:
        self.topics = readers
        self._operators = operators
        self._tools = tools
        self._safeguards = safeguards

    def is_operator(self, who: Admitted) -> bool:
        """May this caller read all, and move holds of others?"""
        return self._operators.knows(who.token) or (self._tools and self._operators.lets(who.token))

    def may(self, topic: str, who: Admitted) -> bool:
        """May this caller read a topic?"""
        named = self.topics.get(topic, frozenset())
        if EVERYBODY in named or (who.name and who.name in named):
            return True
        return not self._safeguards.topic_readers_only or self.is_operator(who)

    def admit(self, topic: str, who: Admitted) -> None:
        """Let a caller read a topic. Raises: TopicNotReadable; to who may read all, UnknownHandler if there is none."""
        if not self.may(topic, who):
            whom = who.name or "who shows this"
            raise TopicNotReadable(f"{whom} is no reader of topic {topic[:100]!r}")
        if topic not in self.topics:
            raise UnknownHandler(
                f"the service keeps no topic {topic[:100]!r}", remedy="GET /topics lists those there are"
            )


def readers_at(config: ReplicaConfig, operators: Operators) -> TopicReaders:
    """Give who may read at the ingress of a replica."""
    certified = config.tls is not None and not config.ingress_tls and config.tls.require_client_certificate
    tools = not refusal_to_callers(config) and (bool(config.token) or not certified)
    return TopicReaders(readers_of(config.drivers), operators, tools=tools)
