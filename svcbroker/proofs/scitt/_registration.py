"""
The registration of statements by a policy, as it follows from a log: which of a topic's events are
entries of the tree of a transparency service.

Nothing but the log decides: the same events give the same tree, whenever and wherever they are
read. The policy itself is in the log: statements of the service, each of which is in force for the
events after it.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final, Literal

import msgspec
from attrs import evolve, frozen
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from ...chain import History
from .._documents import ProofInvalid, base64url
from ._chains import X5CHAIN, Root, keyOfChain
from ._cose import ALG, KID, CoseKey, decodeCbor
from ._receipts import SignedStatement, Signing

POLICY_TYPE: Final = "application/vnd.svcbroker.scitt-policy+json"
"""The content type of a statement with the policy of the service."""

ANCHORS_TYPE: Final = "application/vnd.svcbroker.scitt-anchors+json"
"""The content type of a statement with the issuers that the service trusts."""

KEY_TOPIC: Final = "$svc/scitt"
"""The topic of the records that certify keys of services. Clients cannot publish to it."""

MAX_ISSUERS: Final = 1000
"""The most keys of issuers that a policy trusts."""

MAX_ROOTS: Final = 100
"""The most roots of issuers that a policy trusts."""

MAX_VERIFIED: Final = 1000
"""The most statements of which it is remembered who has signed them."""

_KNOWN_ALGORITHMS: Final = (-7, -8, -9, -19, -35, -51)


class StatementRefused(ProofInvalid):
    """
    A statement is not registered.

    @ivar title: the kind of the refusal, in the words of SCRAPI.
    """

    def __init__(self, title: str, detail: str) -> None:
        super().__init__(detail)
        self.title = title


@frozen(kw_only=True)
class Issuer:
    """
    A key of an issuer that is trusted.

    @ivar name: the issuer, as its statements name it.
    @ivar key: the key; its C{kid} is that of the statements.
    @ivar since: from when on it is trusted, in milliseconds since the epoch; C{None} for always.
    @ivar until: from when on it is not any more; C{None} for never.
    """

    name: str
    key: CoseKey
    since: int | None = None
    until: int | None = None


@frozen(kw_only=True)
class IssuerRoot:
    """
    A root that statements of an issuer may lead to, which have their certificates in them.

    @ivar name: the issuer, as its statements name it.
    @ivar since: as for an L{Issuer}.
    @ivar until: as for an L{Issuer}.
    """

    name: str
    root: Root
    since: int | None = None
    until: int | None = None


class _IssuerRecord(Struct, frozen=True, omit_defaults=True):
    issuer: str
    key: str
    since: int | None = None
    until: int | None = None


class _RootRecord(Struct, frozen=True, omit_defaults=True):
    issuer: str
    certificate: str
    since: int | None = None
    until: int | None = None


class _Anchors(Struct, frozen=True):
    issuers: list[_IssuerRecord]
    # The second where there are roots, which earlier versions would read over.
    format: Literal["svcbroker/scitt-anchors/1", "svcbroker/scitt-anchors/2"]
    roots: list[_RootRecord] | UnsetType = UNSET


class _Policy(Struct, frozen=True):
    leaf: Literal["entry", "sha256"]
    format: Literal["svcbroker/scitt-policy/1"] = "svcbroker/scitt-policy/1"
    rule: str = (
        "A statement is registered whose signature is that of a key in the newest statement with "
        "trust anchors before it, for its issuer and kid, at the time of its block. An entry is "
        "the statement with an empty unprotected header; the leaf is the entry, or its SHA-256."
    )
    # Without it, ES256.
    receipts: Literal["EdDSA"] | UnsetType = UNSET


_ROOTS_RULE: Final = (
    "Of an issuer with roots there, a statement may have a chain of certificates in its protected "
    "header, to one of them, all of which are valid at that time."
)


class KeyRecord(Struct, frozen=True):
    """
    The content of an event that certifies a key of the service, as JSON.

    @ivar service: the name of the service.
    @ivar key: the public key: a COSE_Key in URL-safe Base64.
    """

    service: str
    key: str

    @classmethod
    def of(cls, service: str, key: CoseKey) -> KeyRecord:
        """The record of a key."""
        return cls(service=service, key=base64url(key.encode()))

    def decode(self) -> CoseKey:
        """
        The key.

        @raise ProofInvalid: it is none.
        """
        return _keyOf(self.key)


@frozen(kw_only=True)
class RegistrationPolicy:
    """
    The statements that a service registers.

    @ivar issuers: the keys that are trusted.
    @ivar roots: the roots that are trusted.
    @ivar isHashed: whether a leaf is the SHA-256 of an entry, rather than the entry.
    @ivar receipts: how receipts are signed.
    """

    issuers: Mapping[tuple[str, bytes], Issuer] = {}
    roots: Sequence[IssuerRoot] = ()
    isHashed: bool = False
    receipts: Signing = "ES256"

    @classmethod
    def of(
        cls,
        issuers: Sequence[Issuer | IssuerRoot],
        isHashed: bool = False,
        receipts: Signing = "ES256",
    ) -> RegistrationPolicy:
        """
        The policy that trusts some keys and roots.

        @raise ProofInvalid: two keys of an issuer have one name, or there are too many.
        """
        keys = [each for each in issuers if isinstance(each, Issuer)]
        roots = [each for each in issuers if isinstance(each, IssuerRoot)]
        known = {(each.name, each.key.kid): each for each in keys}
        if len(known) < len(keys):
            raise ProofInvalid("two keys of an issuer have one name: give each a kid")
        if len(known) > MAX_ISSUERS:
            raise ProofInvalid(f"there are more than {MAX_ISSUERS} keys of issuers")
        if len(roots) > MAX_ROOTS:
            raise ProofInvalid(f"there are more than {MAX_ROOTS} roots of issuers")
        return cls(issuers=known, roots=roots, isHashed=isHashed, receipts=receipts)

    def documents(self) -> Sequence[tuple[str, bytes]]:
        """The contents of the statements that put it in force, by their content types."""
        policy = _Policy(
            leaf="sha256" if self.isHashed else "entry",
            receipts=UNSET if self.receipts == "ES256" else self.receipts,
        )
        if self.roots:
            policy = replace(policy, rule=f"{policy.rule} {_ROOTS_RULE}")
        records = [
            _IssuerRecord(
                issuer=each.name,
                key=base64url(each.key.encode()),
                since=each.since,
                until=each.until,
            )
            for each in self.issuers.values()
        ]
        roots = [
            _RootRecord(
                issuer=each.name,
                certificate=base64url(each.root.data),
                since=each.since,
                until=each.until,
            )
            for each in self.roots
        ]
        anchors = _Anchors(
            issuers=records,
            format="svcbroker/scitt-anchors/2" if roots else "svcbroker/scitt-anchors/1",
            roots=roots or UNSET,
        )
        return (
            (POLICY_TYPE, msgspec.json.encode(policy)),
            (ANCHORS_TYPE, msgspec.json.encode(anchors)),
        )

    def keyOf(self, statement: SignedStatement, time: int) -> CoseKey:
        """
        The key that a statement has to be signed by.

        @param time: milliseconds since the epoch.
        @raise ProofInvalid: none is trusted for it at that time.
        """
        header, name = statement.message.header, statement.claims.issuer
        roots = [each for each in self.roots if each.name == name]
        if X5CHAIN in header and roots:
            return self._keyOfChain(statement, roots, time)
        return self._keyOfName(statement, time)

    def _keyOfName(self, statement: SignedStatement, time: int) -> CoseKey:
        """
        The key of the issuer that a statement names.

        @raise ProofInvalid: it is not trusted.
        """
        kid = statement.message.header.get(KID)
        if not isinstance(kid, bytes):
            raise ProofInvalid("the statement does not name its key: kid is missing")
        issuer = self.issuers.get((statement.claims.issuer, kid))
        if issuer is None:
            raise ProofInvalid("the policy has no such issuer with a key of this kid")
        if not _isTrusted(issuer, time):
            raise ProofInvalid("the issuer's key is not trusted at this time")
        return issuer.key

    def _keyOfChain(
        self, statement: SignedStatement, roots: Sequence[IssuerRoot], time: int
    ) -> CoseKey:
        """
        The key of the certificate in a statement.

        @param roots: those of its issuer.
        @raise ProofInvalid: it does not lead to one that is trusted.
        """
        header = statement.message.header
        trusted = [each.root for each in roots if _isTrusted(each, time)]
        if not trusted:
            raise ProofInvalid("the issuer's roots are not trusted at this time")
        key = keyOfChain(header, trusted, time)
        kid = header.get(KID)
        # Whatever names the issuer has to name the same.
        known = self.issuers.get((statement.claims.issuer, kid)) if kid is not None else None
        if known is not None and known.key.thumbprint != key.thumbprint:
            raise ProofInvalid("the certificate of the statement is not of the key of its kid")
        return key


def _isTrusted(issuer: Issuer | IssuerRoot, time: int) -> bool:
    """Whether a key or a root is trusted at a time."""
    return (issuer.since or 0) <= time < (issuer.until or 2**63)


@frozen(kw_only=True)
class Entry:
    """
    An entry of the tree.

    @ivar content: its bytes: the statement with an empty unprotected header.
    @ivar statement: what it says.
    @ivar leaf: what the leaf of the tree is made of.
    @ivar id: the hash by which the entry is known: SHA-256.
    """

    content: bytes
    statement: SignedStatement
    leaf: bytes
    id: bytes


class Registration:
    """
    The registration of statements in a topic, at some place of the log.

    @ivar keys: the keys of the service that the chain has certified, by their names, in their
        order.
    """

    def __init__(self) -> None:
        self.keys: dict[bytes, CoseKey] = {}
        self._policy: bytes | None = None
        self._anchors: bytes | None = None
        self._rule = RegistrationPolicy()
        # By the hashes of entries: by which key the signature was verified here. That does not
        # depend on policy and time.
        self._verified: OrderedDict[bytes, CoseKey] = OrderedDict()

    @property
    def documents(self) -> Sequence[tuple[str, bytes]]:
        """The documents that are in force, as L{RegistrationPolicy.documents} has them."""
        if self._policy is None or self._anchors is None:
            return ()
        return ((POLICY_TYPE, self._policy), (ANCHORS_TYPE, self._anchors))

    def addKey(self, content: bytes) -> None:
        """
        Take an event that certifies a key. One that does not certify any is ignored.
        """
        try:
            key = msgspec.json.decode(content, type=KeyRecord).decode()
        except (msgspec.DecodeError, ProofInvalid):
            return
        self.keys[key.kid] = key

    def check(self, data: bytes, time: int, *, isAhead: bool = False) -> Entry:
        """
        Check a statement by the policy that is in force.

        @param data: the statement, as it is sent or as an event has it.
        @param time: milliseconds since the epoch: now, or the time of the event's block.
        @param isAhead: whether it is checked again as an event. Its signature is verified once.
        @raise StatementRefused: it is not to be registered.
        """
        try:
            statement = SignedStatement.decode(data)
        except ProofInvalid as error:
            raise StatementRefused("Malformed request", str(error)) from None
        message = statement.message
        algorithm = message.header.get(ALG)
        if type(algorithm) is not int or algorithm not in _KNOWN_ALGORITHMS:
            raise StatementRefused(
                "Bad Signature Algorithm",
                "statements are signed with ES256, ES384 or EdDSA with Ed25519",
            )
        if message.payload is None:
            raise StatementRefused("Payload Missing", "the statement does not have its payload")
        if statement.envelope is not None and statement.envelope.hashName is None:
            raise StatementRefused(
                "Rejected", "the hash of a content is SHA-256, SHA-384 or SHA-512 here"
            )
        content = message.withoutUnprotected()
        digest = sha256(content).digest()
        if self._documentOf(statement) is None:
            if not self.documents:
                raise StatementRefused("Rejected", "there is no policy yet")
            try:
                self._verify(statement, time, digest, isAhead)
            except ProofInvalid as error:
                raise StatementRefused("Rejected", str(error)) from None
        return Entry(
            content=content,
            statement=statement,
            leaf=digest if self._rule.isHashed else content,
            id=digest,
        )

    def _verify(self, statement: SignedStatement, time: int, digest: bytes, isAhead: bool) -> None:
        """
        Verify the signature of a statement by the key that the policy trusts for it.

        @param digest: the hash of the entry, which covers the signature.
        @raise ProofInvalid: it is not that of the key, or there is no such key.
        """
        key, verified = self._rule.keyOf(statement, time), self._verified
        if verified.pop(digest, None) != key:
            statement.message.verify(key, "the statement")
        if isAhead:
            verified[digest] = key
            if len(verified) > MAX_VERIFIED:
                verified.popitem(last=False)

    def entryOf(self, content: bytes, time: int) -> Entry | None:
        """
        The entry that an event of the topic is.

        @param content: the content of the event.
        @param time: the time of its block, in milliseconds since the epoch.
        @return: C{None} where it is no statement that is registered as it is.
        """
        try:
            entry = self.check(content, time)
        except StatementRefused:
            return None
        return entry if entry.content == content else None

    def apply(self, entry: Entry) -> str | None:
        """
        Go on after an entry: where it has a policy or trust anchors of the service, they are in
        force from now on.

        @return: the content type of the document that is in force now; C{None} for any other entry.
        """
        kind, payload = self._documentOf(entry.statement), entry.statement.message.payload
        if kind is None or payload is None:
            return None
        try:
            if kind == POLICY_TYPE:
                policy = msgspec.json.decode(payload, type=_Policy)
                self._rule = evolve(self._rule, isHashed=policy.leaf == "sha256")
                self._policy = payload
            else:
                anchors = msgspec.json.decode(payload, type=_Anchors)
                roots = [] if anchors.roots is UNSET else anchors.roots
                found = RegistrationPolicy.of(
                    [*map(_issuerOf, anchors.issuers), *map(_rootOf, roots)]
                )
                self._rule = evolve(self._rule, issuers=found.issuers, roots=found.roots)
                self._anchors = payload
        except (msgspec.DecodeError, ProofInvalid):
            # One that a later version has written: what was in force remains so.
            return None
        return kind

    def _documentOf(self, statement: SignedStatement) -> str | None:
        """The content type of a document of the service itself; C{None} for any other statement."""
        header = statement.message.header
        kid, kind = header.get(KID), header.get(3)
        if kind not in (POLICY_TYPE, ANCHORS_TYPE) or not isinstance(kid, bytes):
            return None
        key = self.keys.get(kid)
        if key is None:
            return None
        try:
            statement.message.verify(key, "the statement")
        except ProofInvalid:
            return None
        return str(kind)


class TreeAudit:
    """
    The tree of a topic of statements, computed from the events of a log and compared with those of
    receipts and checkpoints.

    Events are added in the order of the log. Nothing is believed but these trees, of which this one
    has to be.

    @ivar registration: the keys and the policy, as far as events were added.
    @ivar leftOut: the number of events that are no entries.
    """

    def __init__(self) -> None:
        self.registration = Registration()
        self.leftOut = 0
        self._history = History(0, ())
        self._ids: set[bytes] = set()
        self._wanted: dict[int, list[tuple[str, bytes]]] = defaultdict(list)

    @property
    def size(self) -> int:
        """The number of entries."""
        return self._history.size

    @property
    def root(self) -> bytes:
        """The root of the tree."""
        return self._history.root

    def expect(self, what: str, size: int, root: bytes) -> None:
        """
        Expect a tree. Called before the events are added that make it.

        @param what: what is of this tree, for problems.
        """
        self._wanted[size].append((what, root))

    def add(self, content: bytes, time: int) -> Sequence[str]:
        """
        Add an event of the topic.

        @param content: its content.
        @param time: the time of its block, in milliseconds since the epoch.
        @return: problems: what is of the size that the tree has now, and not of this tree.
        """
        entry = self.registration.entryOf(content, time)
        if entry is None or entry.id in self._ids:
            self.leftOut += 1
            return ()
        self._ids.add(entry.id)
        self._history = self._history.after(entry.leaf)
        self.registration.apply(entry)
        wrong = [what for what, root in self._wanted.pop(self.size, ()) if root != self.root]
        return [f"{each} is of another tree of {self.size} than the log makes" for each in wrong]

    def missing(self) -> Iterator[str]:
        """Problems at the end of the log: trees that it does not make."""
        for size, wanted in sorted(self._wanted.items()):
            for what, _ in wanted:
                yield f"{what} is of a tree of {size}, and the log makes {self.size}"


def _keyOf(text: str) -> CoseKey:
    return CoseKey.make(decodeCbor(_ofBase64(text), "a key"))


def _ofBase64(text: str) -> bytes:
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raise ProofInvalid("a key or a root is not in Base64") from None


def _issuerOf(record: _IssuerRecord) -> Issuer:
    return Issuer(
        name=record.issuer, key=_keyOf(record.key), since=record.since, until=record.until
    )


def _rootOf(record: _RootRecord) -> IssuerRoot:
    root = Root.decode(_ofBase64(record.certificate))
    return IssuerRoot(name=record.issuer, root=root, since=record.since, until=record.until)
