"""
A chain that goes from format 2 to format 3, with events of every kind: for test vectors and tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from svcbroker.chain import Kind, Transaction
from svcbroker.model import EventId, topicPrefix
from tools.vectors.signedchain import SignedChain, publicKeyOf

ADA, BERT = map(publicKeyOf, ("ada", "bert"))
PRIVATE = {"svc-private-name": "Ada L\u00f6velace", "svc-private-": "", "svc-tag": "red"}
LATER = ("node 0", "node b", "node 2", "node 3")
"""The nodes that decide the last block."""

SENT: Mapping[str, Callable[[SignedChain, str], Transaction]] = {
    "no author": lambda chain, topic: chain.say(topic, b"plain"),
    "signed": lambda chain, topic: chain.say(topic, b"signed", author="ada"),
    "signed, no content": lambda chain, topic: chain.say(topic, b"", author="ada"),
    "signed, bytes": lambda chain, topic: chain.say(topic, b"\xff\x00", author="bert"),
    "key": lambda chain, topic: chain.say(topic, b"k", key=f"order-{topic}"),
    "expected": lambda chain, topic: chain.say(topic, b"e", expected=6),
    "private": lambda chain, topic: chain.say(topic, b"p", extensions=PRIVATE),
    "all": lambda chain, topic: chain.say(
        topic, b"all", author="ada", key=f"{topic}!", expected=8, extensions=PRIVATE
    ),
}
"""Transactions that publish to two topics, by what is special about them."""


class AuthoredChain:
    """
    The chain.

    @ivar old: an event of version 1, in a block of format 2.
    @ivar ids: events of version 2 by what is special about them.
    @ivar erased: events that are stored without their content, likewise.
    @ivar switch: the height of the last block of format 2.
    @ivar tip: the height of the last block.
    """

    def __init__(self, directory: Path, kind: type[SignedChain] = SignedChain) -> None:
        """
        @param directory: an empty one.
        @param kind: who decides its blocks.
        """
        self.chain = chain = kind(directory)
        chain.open("a", "b")
        (self.old,) = chain.publish("a", b"of version 1")
        self.switch = chain.head.height
        self.ids = self._publish("a")
        # Erased events may be of version 1, too.
        old = chain.transaction(Kind.PUBLISH, "b", b"erased, of version 1")
        header = chain.decide([old], erased=[0])
        self.erased = {"of version 1": EventId(topicPrefix("b"), 1, header.height)}
        self.erased |= self._publish("b", isErased=True)
        chain.openFor("signed", "ada", "bert", admins=["ada"])
        header = chain.decide([chain.say("signed", b"x", author="bert")])
        self.ids["to a topic with authors"] = EventId(topicPrefix("signed"), 1, header.height)
        chain.changeNodes(*LATER)
        header = chain.decide([chain.say("a", b"later", author="ada")])
        self.ids["after a change of nodes"] = EventId(topicPrefix("a"), 10, header.height)
        self.tip = header.height

    def _publish(self, topic: str, *, isErased: bool = False) -> dict[str, EventId]:
        """Publish everything to a topic that has one event."""
        sent = [make(self.chain, topic) for make in SENT.values()]
        header = self.chain.decide(sent, erased=range(len(sent)) if isErased else ())
        return {
            name: EventId(topicPrefix(topic), number, header.height)
            for number, name in enumerate(SENT, start=2)
        }
