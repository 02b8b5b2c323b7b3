"""
Which chain the entries of the metadata store belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from twisted.logger import Logger

from ._metadata import MetadataStore

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
