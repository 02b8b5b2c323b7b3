"""
Dialects of the interface: for clients of another product of the family.

An event is stored in one form. A dialect changes names and limits on the wire of its clients only.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from ..model import EXTENSION_PREFIX, WEEVENT_PREFIX


@frozen(kw_only=True)
class Dialect:
    """
    What is particular to one dialect.

    @ivar name: its name in the configuration.
    @ivar basePath: the context path of its clients.
    @ivar prefix: how keys of extensions begin on its wire.
    @ivar maxTopic: the longest topic or pattern, in characters.
    @ivar maxContent: the largest content of an event, in bytes.
    """

    name: str
    basePath: str
    prefix: str
    maxTopic: int
    maxContent: int

    def storedKey(self, key: str) -> str:
        """The stored key of an extension that a client has sent. Other keys stay as they are."""
        return EXTENSION_PREFIX + key[len(self.prefix) :] if key.startswith(self.prefix) else key

    def shownKey(self, key: str) -> str:
        """The key by which a client is shown a stored extension. Other keys stay as they are."""
        isStored = key.startswith(EXTENSION_PREFIX)
        return self.prefix + key[len(EXTENSION_PREFIX) :] if isStored else key


WEEVENT: Final = Dialect(
    name="weevent-1.1",
    basePath="/weevent",
    prefix=WEEVENT_PREFIX,
    maxTopic=64,
    maxContent=10 * 1024,
)
"""The dialect of WeEvent 1.1."""
