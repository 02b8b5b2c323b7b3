"""
The accounts that have set retained messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.internet.interfaces import IReactorTime

from ...access import Principal
from ...broker import MetadataStore
from ...interfaces import Action

RETAINERS: Final = "mqtt-retainers/"
"""The kind of an account that has set a retained message, before the group's id. Its name is the
topic."""

UNCONFIRMED_FOR: Final = 30.0
"""How long a topic counts that has no retained message, in seconds: one may be on its way to the
log, or was removed."""

_SEARCH_EVERY: Final = 1.0
"""How often the topics of an account are searched for such that need not count, in seconds."""


class Retainers:
    """
    Counts the retained messages that each account has set in a group, for accounts with the quota
    C{retained}. The log does not know accounts, so this is kept beside it; messages of the time
    before an account had the quota are not counted.
    """

    def __init__(
        self, group: str, has: Callable[[str], bool], store: MetadataStore, clock: IReactorTime
    ) -> None:
        """
        @param has: whether a topic has a retained message.
        """
        self._group = group
        self._has = has
        self._store = store
        self._seconds = clock.seconds
        self._kind = RETAINERS + group
        self._accounts: dict[str, str] = {}
        # The topics of each account, and when they were set last.
        self._topics: dict[str, dict[str, float]] = {}
        self._searched: dict[str, float] = {}

    def start(self) -> None:
        """Read what is kept."""
        for topic, account in self._store.items(self._kind):
            self._set(topic, account.decode("utf-8"))

    def add(self, principal: Principal, topic: str) -> None:
        """
        Count a retained message that an account is about to set. Called for each message that sets
        one.

        @raise QuotaExceeded: the account has set as many as it may.
        """
        isCounted = principal.usage.quotas.retained is not None
        if not isCounted and topic not in self._accounts:
            return
        if not principal.may(Action.PUBLISH, self._group, topic):
            return  # It is going to be refused.
        account = principal.name
        if not isCounted:
            self._remove(topic)
            return
        if self._accounts.get(topic) != account:
            principal.usage.checkRoom("retained", self._count(account, principal))
            self._remove(topic)
            self._store.put(self._kind, topic, account.encode("utf-8"))
        self._set(topic, account)

    def _count(self, account: str, principal: Principal) -> int:
        topics = self._topics.get(account, {})
        most, now = principal.usage.quotas.retained, self._seconds()
        isFull = most is not None and len(topics) >= most
        # A clock that was set back does not make it a long time.
        if isFull and not 0 <= now - self._searched.get(account, -_SEARCH_EVERY) < _SEARCH_EVERY:
            self._searched[account] = now
            for topic, setAt in tuple(topics.items()):
                if not (0 <= now - setAt < UNCONFIRMED_FOR or self._has(topic)):
                    self._remove(topic)
        return len(topics)

    def _set(self, topic: str, account: str) -> None:
        self._accounts[topic] = account
        self._topics.setdefault(account, {})[topic] = self._seconds()

    def _remove(self, topic: str) -> None:
        account = self._accounts.pop(topic, None)
        if account is not None:
            del self._topics[account][topic]
            self._store.remove(self._kind, topic)
