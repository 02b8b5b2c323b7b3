"""
Publishes of a session's client with QoS 2: exactly once, through crashes of the broker.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Final

from ...errors import BrokerError, LedgerUnavailable, Overloaded, TransactionTimeout

_TIME_BYTES: Final = 5
_RANDOM_BYTES: Final = 10
_KEY_LENGTH: Final = 20
"""Characters that encode the time and the random bytes of a key."""


class Incoming:
    """
    The exchanges with QoS 2 in which the client is the sender (section 4.3.3).

    In a session that outlives its connections each publish has an I{idempotency key}, of which the
    chain executes one publish only. The key is unguessable, and is on disk by packet identifier
    before the publish is submitted. It is removed with the exchange: before PUBCOMP, or the PUBREC
    of a refusal, is sent. So a crash of the broker at any point leaves one event:

     1. Before the key is on disk: nothing was submitted. What the client sends again is new.
     2. Before the block is on disk: the publish was not executed, or will be (a CometBFT network
        has it). What the client sends again has the same key.
     3. Before PUBREC is sent: the same, and the chain answers with the first event.
     4. Before the release is on disk: the client sends PUBREL again (it has PUBREC), or the PUBLISH
        (it has not): then this is case 3.
     5. Before PUBCOMP is sent: the client sends PUBREL again, which is answered as an unknown one.
     6. After that: the client may use the packet identifier for another message, which gets another
        key: the disk has none for this packet identifier.

    That a publish is in the log is on disk too, soon after PUBREC (25 ms): from then on the
    publish is not submitted again, however many keys the account has used since.

    There is no key of the broker's where the client gives one of its own, nor where the author has
    signed, because the key is in the signed statement. There that the publish is in the log is on
    disk before PUBREC is sent, and what is submitted again after a crash in between has the
    client's key, or is published twice.

    @ivar submitted: packet identifiers of publishes that are on their way to the log.
    @ivar published: packet identifiers of those that are in the log and not released.
    @ivar keys: the keys of those that are not known to be in the log, by packet identifier.
    """

    def __init__(self, storeNow: Callable[[], None], storeSoon: Callable[[], None]) -> None:
        """
        @param storeNow: has this on disk before the client is sent anything more.
        @param storeSoon: has this on disk a little later.
        """
        self.submitted: set[int] = set()
        self.published: set[int] = set()
        self.keys: dict[int, str] = {}
        # Those that may be in the log by an earlier submission.
        self._resubmitted: set[int] = set()
        self._storeNow = storeNow
        self._storeSoon = storeSoon

    def begin(
        self, packetIds: Sequence[int], payloads: Sequence[bytes], most: int
    ) -> tuple[dict[int, bytes], list[int]]:
        """
        Begin exchanges, up to the one that would be the first above a bound.

        @param most: how many may be begun.
        @return: the payloads of the messages that are to be published, by packet identifier, and
            the packet identifiers of repetitions.
        """
        begun: dict[int, bytes] = {}
        repeated = []
        for packetId, payload in zip(packetIds, payloads, strict=True):
            if packetId in self.published or packetId in self.submitted:
                repeated.append(packetId)
            elif len(begun) == most:
                break
            else:
                self.submitted.add(packetId)
                begun[packetId] = payload
        return begun, repeated

    def keysOf(
        self, packetIds: Sequence[int], now: float, entropy: Callable[[int], bytes]
    ) -> Sequence[str]:
        """
        The idempotency keys of some PUBLISHes, new ones for those that were not sent before. The
        caller stores the session before it submits the publishes.

        A key is the time in milliseconds, which its transaction tells as well, and random bytes.
        Keys of the same time are neighbours in the index of a store, so that a block changes few of
        its pages.

        @param now: seconds since the epoch.
        """
        keys = self.keys
        self._resubmitted.update(keys.keys() & packetIds)
        new = [packetId for packetId in packetIds if packetId not in keys]
        time = (int(now * 1000) % 256**_TIME_BYTES).to_bytes(_TIME_BYTES, "big")
        random = entropy(_RANDOM_BYTES * len(new))
        parts = [random[at : at + _RANDOM_BYTES] for at in range(0, len(random), _RANDOM_BYTES)]
        encoded = urlsafe_b64encode(b"".join([time + part for part in parts])).decode("ascii")
        for at, packetId in enumerate(new):
            keys[packetId] = encoded[at * _KEY_LENGTH : (at + 1) * _KEY_LENGTH]
        return [keys[packetId] for packetId in packetIds]

    def _forgetKey(self, packetId: int) -> None:
        self._resubmitted.discard(packetId)
        if self.keys.pop(packetId, None) is not None:
            self._storeNow()

    def accepted(self, packetIds: Sequence[int]) -> None:
        """Record that publishes are in the log. The caller sends PUBREC for each."""
        self.submitted.difference_update(packetIds)
        self.published.update(packetIds)
        self._resubmitted.difference_update(packetIds)
        keys = [self.keys.pop(packetId, None) for packetId in packetIds]
        if None in keys:
            self._storeNow()
        if any(keys):
            self._storeSoon()

    def refused(self, packetId: int, error: BrokerError) -> bool:
        """
        Record that a publish was refused.

        @return: whether it is not in the log, so that the caller sends PUBREC with the reason.
            Otherwise the caller closes the connection, and the client sends the publish again.
        """
        self.submitted.discard(packetId)
        isTemporary = isinstance(error, (Overloaded, LedgerUnavailable))
        if packetId in self.keys and (
            isinstance(error, TransactionTimeout) or (isTemporary and packetId in self._resubmitted)
        ):
            return False
        self._forgetKey(packetId)
        return True

    def interrupted(self, packetId: int) -> None:
        """Record that a publish is not answered: the connection ends, the client sends it again."""
        self.submitted.discard(packetId)

    def release(self, packetIds: Sequence[int]) -> list[bool]:
        """Record PUBRELs; return which publishes were known. The caller sends PUBCOMP for each."""
        known = []
        for packetId in packetIds:
            isKnown = packetId in self.published
            self.published.discard(packetId)
            if packetId not in self.submitted:
                isKnown = isKnown or packetId in self.keys
                self._forgetKey(packetId)
            known.append(isKnown)
        # Also for an unknown one: that of an earlier connection may not be on disk yet.
        self._storeNow()
        return known
