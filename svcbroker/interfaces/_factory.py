"""
The contract of a ledger's plugin: reading its description, and making the ledger.
"""

# ruff: noqa: N805

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from attrs import Factory, frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.plugin import IPlugin
from zope.interface import Attribute, Interface

from ._ledger import ILedger


class InvalidDescription(Exception):
    """
    A description of a ledger or of another plugin that cannot be used. The text is one line for the
    operator and names the setting.
    """


@frozen(kw_only=True)
class LedgerContext:
    """
    The directory, clock, randomness and threads that a ledger is given. A ledger takes time,
    randomness, threads and its place
    on the disk from here and from nowhere else, so that a test can hold all of them.

    @ivar group: the group whose log it is to keep.
    @ivar directory: a directory for this ledger alone. Its parent exists; the ledger makes it
        when it needs one.
    @ivar reactor: the clock: for waiting (C{callLater}). In the daemon it is the reactor.
    @ivar now: the wall clock: seconds since the epoch, for timestamps.
    @ivar entropy: C{entropy(n)} gives C{n} unguessable bytes.
    @ivar runInThread: C{runInThread(f, *args)} runs blocking disk work off the reactor
        thread, one call at a time in the order of the calls, and gives its result in a
        Deferred. A test runs it at once.
    @ivar runBriefly: the same for what a disk in good health does in less time than a thread
        takes to hear of it, such as storing a block. It may run on the reactor thread, and its
        Deferred may have fired when it is returned. By default it is C{runInThread}.
    @ivar maxContent: the largest content in bytes that the broker lets in.
    @ivar turn: fires when a read that takes long may go on. The daemon shares the time of a turn of
        the reactor among all that clients ask for. By default it is the next turn.
    """

    group: str
    directory: Path
    reactor: IReactorTime
    now: Callable[[], float]
    entropy: Callable[[int], bytes]
    runInThread: Callable[..., Deferred[Any]]
    runBriefly: Callable[..., Deferred[Any]] = Factory(
        lambda self: self.runInThread, takes_self=True
    )
    maxContent: int
    turn: Callable[[], Deferred[None]] = Factory(
        lambda self: partial(deferLater, self.reactor, 0), takes_self=True
    )


class ILedgerFactory(IPlugin, Interface):
    """
    A kind of ledger, chosen by the first word of a description such as C{pbft:nodes=7}.

    A plugin module under C{twisted/plugins/} provides instances of it; the option parser finds
    them with C{twisted.plugin.getPlugins}.
    """

    name: str = Attribute("The first word of its descriptions.")

    summary: str = Attribute("What it is, in a line, for --help-ledger.")

    settings: Mapping[str, str] = Attribute(
        "What may follow the name: each setting's key, and its meaning, unit and default in a "
        "line, for --help-ledger."
    )

    def configure(settings: Mapping[str, str]) -> Callable[[LedgerContext], ILedger]:
        """
        Check a description's settings and remember them.

        Called by the option parser, once a group, before anything is started, with the
        settings as written (C{pbft:nodes=7} gives C{{"nodes": "7"}}). Has no side effects.

        @return: what makes the ledger; it is called once, with no more to go wrong than
            L{ILedger.start} can say.
        @raise InvalidDescription: a setting is unknown or has a bad value.
        """


class IBoundedLedgerFactory(Interface):
    """
    A kind of ledger that tells how much memory one of it may take. L{LedgerPlugin
    <svcbroker.ledgers.LedgerPlugin>} asks the module of any kind of ledger; of a factory without
    this, operators are told that it is not known.
    """

    def memory(settings: Mapping[str, str]) -> Mapping[str, int] | None:
        """
        The bounds of a ledger: what it keeps in memory, in a few words for operators, and the most
        bytes of it. What grows with the chain does not belong here.

        @param settings: as L{ILedgerFactory.configure} has them.
        @return: C{None} where that is not known.
        @raise InvalidDescription: a setting is unknown or has a bad value.
        """


class IFeaturePlugin(IPlugin, Interface):
    """
    A feature of the daemon that another distribution brings, such as a carrier. The daemon loads
    all of them when it reads its settings.
    """

    def load() -> Any:
        """Import it: a C{svcbroker.broker.features.Feature}. Called once."""
