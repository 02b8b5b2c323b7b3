"""
The one table of what can go wrong, from which every carrier renders.

A class an error. The class carries the numbers of the published interface (a REST code and a
JSON-RPC code), an instance the words for one case. Nothing here knows a carrier: an HTTP status
or an MQTT reason code is the carrier's own mapping from these classes.

Messages are shown to clients. They never hold a stack trace, a file path or the text of another
exception.

Many names: it is one table, from which every carrier renders its errors.
"""

from __future__ import annotations

from typing import ClassVar


class BrokerError(Exception):
    """
    A failure that a client is told of.

    @cvar code: the code of the REST and admin answers: 100000-199999 where the client is at
        fault, 200000-299999 where the server is.
    @cvar rpcCode: the code of the JSON-RPC error object.
    @cvar text: what is said where the raiser has no better words.
    @ivar message: what is said.
    """

    code: ClassVar[int] = 200203
    rpcCode: ClassVar[int] = -32603
    text: ClassVar[str] = "unknown error"

    def __init__(self, message: str | None = None) -> None:
        self.message = self.text if message is None else message
        super().__init__(self.message)

    @property
    def name(self) -> str:
        """The name that the interface gives this error."""
        return type(self).__name__


class TopicNotFound(BrokerError):
    """There is no such open topic."""

    code, rpcCode, text = 100101, -32001, "topic does not exist"


class TopicTooLong(BrokerError):
    """A topic name of more than 256 characters, or more than 256 bytes beyond ASCII."""

    code, rpcCode, text = 100102, -32002, "topic name is longer than 256 characters"


class TopicBlank(BrokerError):
    """A topic name that is absent, empty or only spaces."""

    code, rpcCode, text = 100103, -32003, "topic name is blank"


class PageIndexInvalid(BrokerError):
    """A page's index that is not a number or lies below the first page."""

    code, rpcCode, text = 100104, -32004, "page index is not valid"


class TopicInvalid(BrokerError):
    """A topic name with a character that its group does not allow, or with C{+} or C{#}."""

    code, rpcCode, text = (
        100106,
        -32005,
        "topic name has a character that is not allowed: only [32,128] without + and #",
    )


class PageSizeInvalid(BrokerError):
    """A page size that is not a number."""

    code, rpcCode, text = 100107, -32006, "page size is not a number"


class PatternInvalid(BrokerError):
    """A subscription pattern that MQTT forbids."""

    code, rpcCode, text = 100109, -32007, "subscription pattern is not valid"


class ContentBlank(BrokerError):
    """Content that is absent or has no bytes."""

    code, rpcCode, text = 100200, -32010, "content is blank"


class ContentTooLarge(BrokerError):
    """Content above the broker's limit."""

    code, rpcCode, text = 100201, -32011, "content is larger than this broker takes"


class ExtensionsTooLarge(BrokerError):
    """Extension keys and values of more than 8 KiB together."""

    code, rpcCode, text = 100204, -32012, "extensions are larger than 8192 bytes together"


class ExtensionKeyInvalid(BrokerError):
    """An extension key that does not start with C{svc-}."""

    code, rpcCode, text = 100206, -32013, "extension keys start with svc-"


class QueryTooLong(BrokerError):
    """A REST publish by GET with a query string of more than 1024 bytes."""

    code, rpcCode, text = (
        100207,
        -32014,
        "query string is longer than 1024 bytes: publish by POST",
    )


class IdempotencyConflict(BrokerError):
    """An idempotency key that was used for another event."""

    code, rpcCode, text = 100208, -32015, "idempotency key was used for other content"


class SequenceConflict(BrokerError):
    """
    A publish that expected another sequence number of its topic.

    @ivar sequence: the number that the topic has; C{None} where it is not known.
    """

    code, rpcCode, text = 100209, -32016, "topic has another sequence number than expected"

    def __init__(self, sequence: int | None = None) -> None:
        super().__init__(None if sequence is None else f"{self.text}: it has {sequence}")
        self.sequence = sequence


class SignatureInvalid(BrokerError):
    """An author or a signature that is malformed, or a signature that does not hold."""

    code, rpcCode, text = 100210, -32017, "signature is not that of the author"


class AuthorRefused(BrokerError):
    """An event that none of its topic's authors has signed, or a topic with other authors."""

    code, rpcCode, text = 100211, -32018, "topic takes events of its authors only"


class EventIdBlank(BrokerError):
    """An event id that is absent or blank."""

    code, rpcCode, text = 100300, -32020, "event id is blank"


class EventIdTooLong(BrokerError):
    """An event id of more than 64 characters."""

    code, rpcCode, text = 100301, -32021, "event id is longer than 64 characters"


class EventIdInvalid(BrokerError):
    """A malformed event id."""

    code, rpcCode, text = 100302, -32022, "event id is malformed"


class EventNotFound(BrokerError):
    """A well-formed event id that no event has."""

    code, rpcCode, text = 100303, -32023, "event does not exist"


class HeightUnknown(BrokerError):
    """A height, or an event id whose block is, above the chain's height."""

    code, rpcCode, text = 100304, -32024, "the event id names a block above the chain's height"


class EventErased(BrokerError):
    """
    An event whose content was erased.

    @ivar topic: its topic.
    @ivar first: the sequence number of the first of the consecutive events of the topic that were
        erased with it; 0 where that is not known.
    @ivar last: that of the last of them.
    @ivar time: the time of the block that erased it, in milliseconds since the epoch.
    @ivar account: the account of the operator who asked for it; may be empty.
    @ivar reason: why, as the operator said.
    @ivar transaction: the hash of the transaction that erased it: 32 bytes.
    """

    code, rpcCode, text = 100305, -32025, "the content of the event was erased"

    def __init__(
        self,
        message: str | None = None,
        *,
        topic: str = "",
        first: int = 0,
        last: int = 0,
        time: int = 0,
        account: str = "",
        reason: str = "",
        transaction: bytes = b"",
    ) -> None:
        super().__init__(message)
        self.topic = topic
        self.first = first
        self.last = last
        self.time = time
        self.account = account
        self.reason = reason
        self.transaction = transaction


class EventHeld(BrokerError):
    """Events that a hold keeps from being erased. The message names its case."""

    code, rpcCode, text = 100306, -32026, "the events are held and not erased"


class UrlInvalid(BrokerError):
    """A webhook address that cannot be used."""

    code, rpcCode, text = 100501, -32030, "url cannot be used"


class SubscriptionIdBlank(BrokerError):
    """A subscription id that is absent or blank."""

    code, rpcCode, text = 100503, -32031, "subscription id is blank"


class SubscriptionNotFound(BrokerError):
    """There is no such subscription."""

    code, rpcCode, text = 100504, -32032, "subscription does not exist"


class SubscriptionIdInvalid(BrokerError):
    """A subscription id that is not a UUID."""

    code, rpcCode, text = 100505, -32033, "subscription id is not a UUID"


class SubscriptionExists(BrokerError):
    """A subscription id that is in use."""

    code, rpcCode, text = 100507, -32034, "subscription id is in use"


class ParameterInvalid(BrokerError):
    """A parameter of the wrong type, or a missing one that has no code of its own."""

    code, rpcCode, text = 100600, -32602, "a parameter is not valid"


class NotAuthenticated(BrokerError):
    """There are no credentials, or they are not valid."""

    code, rpcCode, text = 101015, -32041, "not authenticated"


class NotAuthorized(BrokerError):
    """The account may not do this."""

    code, rpcCode, text = 101016, -32040, "not authorized"


class Overloaded(BrokerError):
    """The broker refuses work that it cannot take now. It is safe to try again."""

    code, rpcCode, text = 200101, -32050, "the broker is overloaded, try again"


class QuotaExceeded(Overloaded):
    """
    The account, or the address of a client without one, has used up one of its limits.

    @ivar retryAfter: when it is worth trying again, in seconds from now; 0 where that depends on
        what the account itself gives up.
    """

    def __init__(self, message: str, retryAfter: float = 0.0) -> None:
        super().__init__(message)
        self.retryAfter = retryAfter


class TransactionTimeout(BrokerError):
    """The chain gave no answer in time. What was asked may still happen."""

    code, rpcCode, text = 200201, -32051, "the chain gave no answer in time"


class TransactionFailed(BrokerError):
    """The transaction was not executed correctly."""

    code, rpcCode, text = 200202, -32052, "the transaction was not executed correctly"


class UnknownError(BrokerError):
    """Anything else. The message carries an incident id, the log has the cause."""

    code, rpcCode, text = 200203, -32603, "unknown error"


class NoSuchCall(BrokerError):
    """An unknown path under C{/rest} or C{/admin}, or an unknown JSON-RPC method."""

    code, rpcCode, text = 200204, -32601, "no such call"


class GroupUnknown(BrokerError):
    """A group that this broker does not serve."""

    code, rpcCode, text = 200211, -32053, "group is unknown"


class LedgerUnavailable(BrokerError):
    """The ledger's engine, or the disk below it, cannot be reached."""

    code, rpcCode, text = 200214, -32054, "the ledger cannot be reached"


class NodeBehind(BrokerError):
    """
    This node of a network does not have a block yet that the call names; another one may have it.
    Nothing was done. It is safe to try again, here or there.

    @cvar retryAfter: when it is worth trying again, in seconds from now: the call has waited.
    """

    code, rpcCode = 200216, -32056
    text = "this node does not have that block yet: try again, or ask another node"
    retryAfter: ClassVar[float] = 1.0


TABLE: tuple[type[BrokerError], ...] = tuple(BrokerError.__subclasses__())
"""Every error of the published interface, in the order of its codes."""
