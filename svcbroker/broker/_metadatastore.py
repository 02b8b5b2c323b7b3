"""
The metadata store: what carriers and subscriptions keep through restarts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

DELAY = 0.025
"""Seconds for which changes are collected before they are written."""

RETRY = 1.0
"""Seconds until a failing disk is tried again."""

Key = tuple[str, str]


class IMetadataFile(Protocol):
    """The file of the store: L{svcbroker.storage.MetadataFile}. Its calls block."""

    def load(self) -> dict[Key, bytes]:
        """Read all values."""

    def write(self, changes: dict[Key, bytes | None]) -> None:
        """Write new values and remove those that are C{None}, all or none, and sync."""

    def close(self) -> None:
        """Close the file."""


class MetadataStore:
    """
    Values by kind and name, which survive restarts. Reads are answered from memory; changes are
    written together, L{DELAY} later. A crash loses at most the changes of that time; a caller that
    must not lose one waits for L{flush}.
    """

    _log = Logger()

    def __init__(
        self,
        file: IMetadataFile,
        reactor: IReactorTime,
        runInThread: Callable[..., Deferred[Any]],
    ) -> None:
        """
        @param runInThread: runs blocking disk work, one call after the other.
        @raise svcbroker.storage.StorageError: what is kept cannot be read.
        """
        self._file = file
        self._reactor = reactor
        self._runInThread = runInThread
        self._kinds: dict[str, dict[str, bytes]] = {}
        for (kind, name), value in file.load().items():
            self._kinds.setdefault(kind, {})[name] = value
        self._changes: dict[Key, bytes | None] = {}
        # Called before the next write, each once.
        self._contributors: dict[Callable[[], None], None] = {}
        self._call: IDelayedCall | None = None
        self._writing: Deferred[None] | None = None
        # Those who wait for the changes above, and for the write that is under way.
        self._waiters: list[Deferred[None]] = []
        self._writeWaiters: list[Deferred[None]] = []

    def get(self, kind: str, name: str) -> bytes | None:
        """The value that is kept under a name; C{None} where none is."""
        return self._kinds.get(kind, {}).get(name)

    def items(self, kind: str) -> Sequence[tuple[str, bytes]]:
        """Everything of a kind, by name."""
        return sorted(self._kinds.get(kind, {}).items())

    def kinds(self) -> Sequence[str]:
        """All kinds of which something is or was kept."""
        return tuple(self._kinds)

    def names(self, kind: str) -> Sequence[str]:
        """The names of everything of a kind, in no particular order."""
        return tuple(self._kinds.get(kind, ()))

    def count(self, kind: str) -> int:
        """The number of entries of a kind."""
        return len(self._kinds.get(kind, ()))

    def put(self, kind: str, name: str, value: bytes) -> None:
        """Keep something, in place of what was kept under its name."""
        names = self._kinds.setdefault(kind, {})
        if names.get(name) != value:
            names[name] = value
            self._change((kind, name), value)

    def remove(self, kind: str, name: str) -> None:
        """Remove a value. Removing an absent one changes nothing."""
        if self._kinds.get(kind, {}).pop(name, None) is not None:
            self._change((kind, name), None)

    def beforeWrite(self, contribute: Callable[[], None]) -> None:
        """
        Have the next write include what C{contribute} puts and removes: it is called once, when
        that write begins. For state that changes much more often than it is written.
        """
        self._contributors[contribute] = None
        self._schedule(DELAY)

    def writeWith(self, contribute: Callable[[], None]) -> Deferred[None]:
        """
        Have the next write, which is not delayed, include what C{contribute} puts and removes, as
        L{beforeWrite} does. Fires when that is on stable storage; while the disk fails it waits.
        """
        self._contributors[contribute] = None
        written: Deferred[None] = Deferred()
        self._waiters.append(written)
        self._schedule(0)
        return written

    def _contribute(self) -> None:
        while self._contributors:
            contribute, _ = self._contributors.popitem()
            contribute()

    def _change(self, key: Key, value: bytes | None) -> None:
        self._changes[key] = value
        self._schedule(DELAY)

    def flush(self) -> Deferred[None]:
        """
        Fires when all that was put or removed until now is on stable storage. While the disk
        fails it waits.
        """
        if not self._changes and self._writing is None:
            return succeed(None)
        written: Deferred[None] = Deferred()
        if self._changes:
            self._waiters.append(written)
            self._schedule(0)
        else:
            # Everything is in the write that is under way; there may never be another.
            self._writeWaiters.append(written)
        return written

    def stop(self) -> Deferred[None]:
        """
        Write the pending changes, once, and close the file.
        """
        if self._call is not None:
            self._call.cancel()
            self._call = None

        async def stop() -> None:
            if self._writing is not None:
                await self._writing
            if self._call is not None:
                self._call.cancel()
                self._call = None
            self._contribute()
            if self._changes:
                await self._write(retry=False)
            await self._runInThread(self._file.close)

        return Deferred.fromCoroutine(stop())

    def _schedule(self, delay: float) -> None:
        if self._writing is not None:
            return
        if self._call is None:
            self._call = self._reactor.callLater(delay, self._begin)
        elif self._call.getTime() > self._reactor.seconds() + delay:
            self._call.reset(delay)

    def _begin(self) -> None:
        self._contribute()
        self._call = None
        if self._changes or self._waiters:
            self._writing = Deferred()
            self._write(retry=True)

    def _write(self, retry: bool) -> Deferred[None]:
        changes, self._changes = self._changes, {}
        waiters, self._waiters = self._waiters, []
        self._writeWaiters = waiters

        def written(_: object) -> None:
            self._ended()
            for waiter in waiters:
                waiter.callback(None)
            if self._changes or self._contributors:
                self._schedule(0 if self._waiters else DELAY)

        def failed(failure: Failure) -> None:
            self._log.failure("what subscriptions keep could not be written", failure)
            # What has changed again meanwhile is newer.
            self._changes = {**changes, **self._changes}
            self._waiters = waiters + self._waiters
            self._ended()
            if retry:
                self._schedule(RETRY)

        writing = self._runInThread(self._file.write, changes)
        writing.addCallbacks(written, failed)
        result: Deferred[None] = writing
        return result

    def _ended(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.callback(None)


CHAIN: Final = "chain"
"""The kind of the id of the chain that a group was served from last. Its name is the group's id."""
_ASIDE: Final = "aside"

GroupOf: TypeAlias = Callable[[str, str, bytes], str]
"""Gives the group that an entry is about, by its kind, name and value."""

_log = Logger()


def bindToChains(
    store: MetadataStore, chains: Mapping[str, bytes], groupOf: Mapping[str, GroupOf]
) -> None:
    """
    Have the store hold the entries of the chains that are served now, and of no others.

    Positions name places of one chain: on another one under the same group's id they would skip
    events. So entries of another chain are set aside under kinds of their own, and are put back
    when that chain is served again. Those of a log that was not kept are removed. Entries that
    were written before the store knew chains belong to the first kept chain that is served.

    Called once, before anything else uses the store.

    @param chains: the id of the chain of each group; empty where the ledger keeps nothing.
    @param groupOf: by the first word of a kind, up to a hyphen; kinds without an entry are of no
        group.
    """
    for group, chain in chains.items():
        known = store.get(CHAIN, group)
        if known == chain and chain:
            continue
        if known is not None or not chain:
            _leave(store, group, known, groupOf)
        if chain:
            back = _putBack(store, group, chain) + _putBack(store, group, b"")
            if back:
                _log.info(
                    "group {group} is served from chain {chain} again: its {count} records of "
                    "subscriptions are back",
                    group=group,
                    chain=_shown(chain),
                    count=back,
                )
        store.put(CHAIN, group, chain)


def _leave(
    store: MetadataStore, group: str, known: bytes | None, groupOf: Mapping[str, GroupOf]
) -> None:
    """Set the entries of a group aside, or remove them if their log was not kept."""
    count = 0
    for kind in store.kinds():
        find = groupOf.get(kind.partition("-")[0])
        if find is None:
            continue
        for name, value in store.items(kind):
            try:
                isOfGroup = find(kind, name, value) == group
            except ValueError:
                continue  # its reader says that it is damaged
            if isOfGroup:
                count += 1
                store.remove(kind, name)
                if known != b"":
                    store.put(_aside(group, known or b"") + kind, name, value)
    if known or (known is None and count):
        _log.warn(
            "group {group} is served from another chain than before: {count} records of "
            "subscriptions (positions, sessions, webhooks) are set aside until {chain} is served "
            "again",
            group=group,
            count=count,
            chain=f"chain {_shown(known)}" if known else "the chain before",
        )


def _putBack(store: MetadataStore, group: str, chain: bytes) -> int:
    """Put the entries of a chain back that were set aside; return how many there were."""
    prefix, count = _aside(group, chain), 0
    for kind in store.kinds():
        if kind.startswith(prefix):
            for name, value in store.items(kind):
                store.remove(kind, name)
                store.put(kind[len(prefix) :], name, value)
                count += 1
    return count


def _aside(group: str, chain: bytes) -> str:
    return f"{_ASIDE}/{group}/{chain.hex()}/"


def _shown(chain: bytes) -> str:
    return chain.hex()[:16]
