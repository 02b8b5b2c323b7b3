"""
C{svcbroker proof scitt verify}: checks a statement and its receipts offline.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from attrs import frozen

from ..files import openFile, readFile
from ..proofs import ProofInvalid
from ..proofs.tlog import MAX_NOTE_SIZE
from .arguments import PATH, jsonOption, makeCommand, options
from .inputs import readPolicy
from .prooftext import factLine, witnessedFields, witnessedLines
from .terminal import CommandError, Console, Exit, counted, notProved, quoted, showRecord, timeText

if TYPE_CHECKING:
    from ..proofs.scitt import (
        ConsistencyReceipt,
        CoseKey,
        SignedStatement,
        VerifiedReceipt,
        WitnessedTree,
    )
    from ..proofs.tlog import Policy


CONTENT: Final = click.option(
    "--content",
    type=PATH,
    metavar="FILE",
    help="Check that this file is what the statement has in it, or has the hash of.",
)
CHECKPOINT: Final = click.option(
    "--checkpoint",
    type=PATH,
    metavar="FILE",
    help="A checkpoint of a log that has the tree of a receipt; needs --policy.",
)
POLICY: Final = click.option(
    "--policy",
    type=PATH,
    metavar="FILE",
    help="The logs and witnesses trusted: a tlog-policy.",
)


@makeCommand(
    """\
    Check a statement of SCITT and its receipts offline, against keys that are trusted.

    STATEMENT is a Transparent Statement, or a Signed Statement whose receipts are given with
    --receipt. --keys are those of the service that has signed the receipts: a COSE_KeySet, as it
    has them at /.well-known/scitt-keys, or a key in PEM. Receipts that are signed by other keys are
    left out. Get the keys from somebody you trust, and keep them.

    A receipt shows that the statement is in the tree of the service, of the size and root that are
    shown. It does not show that what the statement says is true, nor that the service shows the
    same tree to others. With --consistency it is shown that the service's later tree has
    everything that the tree of the receipt has. With --checkpoint, a checkpoint of a broker's log,
    and --policy it is shown that the log has signed this tree beside its blocks, and which
    witnesses have seen it, and when.

    A Hash Envelope has the hash of its content alone: --content compares a file with it.

    Exit codes: 0 proved, 1 not proved, 2 wrong usage.
    """
)
@options(
    click.argument("statement", type=PATH),
    click.option(
        "--receipt",
        "receipts",
        type=PATH,
        metavar="FILE",
        multiple=True,
        help="A receipt of the statement. May come again.",
    ),
    click.option(
        "--consistency",
        type=PATH,
        metavar="FILE",
        help="A receipt that a later tree has all that the tree of a receipt has.",
    ),
    click.option(
        "--keys", type=PATH, metavar="FILE", required=True, help="The keys of the service trusted."
    ),
    click.option(
        "--service", metavar="NAME", help="The name that the service must have in its receipts."
    ),
    click.option(
        "--issuer-keys",
        "issuerKeys",
        type=PATH,
        metavar="FILE",
        help="The keys of the statement's issuer, by which its signature is checked.",
    ),
    CONTENT,
    CHECKPOINT,
    POLICY,
    jsonOption("Tell what is proved in JSON."),
)
def command(
    console: Console,
    statement: Path,
    receipts: tuple[Path, ...],
    consistency: Path | None,
    keys: Path,
    service: str | None,
    issuerKeys: Path | None,
    content: Path | None,
    checkpoint: Path | None,
    policy: Path | None,
    asJson: bool,
) -> int:
    """Check the receipts, and tell what they prove."""
    scitt = importScitt()
    seen = readCheckpointFile(checkpoint, policy)
    trusted = readKeyFile(keys)
    ofIssuer = [] if issuerKeys is None else readKeyFile(issuerKeys)
    try:
        said = scitt.SignedStatement.decode(readMessage(statement))
        given = [*scitt.receiptsOf(said), *map(readMessage, receipts)]
        if not given:
            raise ProofInvalid("the statement has no receipts: give --receipt")
        if ofIssuer:
            said.verify(ofIssuer)
        checkContent(said, content)
        found = scitt.verifyReceipts(said, given, trusted, service)
        grown = None
        if consistency is not None:
            grown = scitt.verifyGrowth(found, readMessage(consistency), trusted, service)
        tree = None if seen is None else scitt.verifyWitnessedTree(found, grown, *seen)
    except ProofInvalid as error:
        return notProved(console, error, asJson)
    proved = ProvedStatement(said, found, len(given), bool(ofIssuer), content, grown, tree)
    return proved.show(console, asJson)


def importScitt() -> Any:
    """
    The package with what verifies.

    @raise CommandError: the extra is not installed.
    """
    try:
        from ..proofs import scitt
    except ImportError:
        raise CommandError("SCITT needs cbor2: pip install 'svcbroker[scitt]'") from None
    return scitt


def readMessage(path: Path) -> bytes:
    """The content of a file with a message, which is too long where the file is."""
    from ..proofs.scitt import MAX_MESSAGE

    return readFile(path, MAX_MESSAGE)


def readStatement(path: Path) -> SignedStatement:
    """
    Read a statement whose receipts, if it has any, are well formed.

    @raise CommandError: it is none.
    """
    scitt = importScitt()
    try:
        said: SignedStatement = scitt.SignedStatement.decode(readMessage(path))
        scitt.receiptsOf(said)
    except ProofInvalid as error:
        raise CommandError(f"{path}: {error}") from None
    return said


def checkContent(said: SignedStatement, path: Path | None) -> None:
    """
    Check that a file, if any, is the content of a statement.

    @raise ProofInvalid: it is not.
    """
    if path is not None:
        with openFile(path) as file:
            said.checkContent(file)


def readKeyFile(path: Path) -> Sequence[CoseKey]:
    """
    Read a file with keys.

    @raise CommandError: it is none.
    """
    from ..proofs.scitt import MAX_HEADER, readKeys

    try:
        return readKeys(readFile(path, MAX_HEADER))
    except ProofInvalid as error:
        raise CommandError(f"{path}: {error}") from None


def readCheckpointFile(checkpoint: Path | None, policy: Path | None) -> tuple[bytes, Policy] | None:
    """
    Read a checkpoint, and the policy by which it is accepted.

    @raise CommandError: one is given without the other, or a file is none.
    """
    if (checkpoint is None) != (policy is None):
        raise CommandError("--checkpoint and --policy are given together")
    if checkpoint is None or policy is None:
        return None
    return readFile(checkpoint, MAX_NOTE_SIZE), readPolicy(policy)


@frozen
class ProvedStatement:
    """
    A statement that is in the tree of a service.

    @ivar found: the receipts that prove it.
    @ivar given: the number of its receipts.
    @ivar isSigned: whether the signature of its issuer was checked.
    @ivar content: the file that was found to be its content.
    @ivar grown: the consistency receipt from one of them, and the root of the later tree.
    @ivar seen: the checkpoint that has the tree of one of them, or the later one.
    """

    said: SignedStatement
    found: Sequence[VerifiedReceipt]
    given: int
    isSigned: bool
    content: Path | None = None
    grown: tuple[ConsistencyReceipt, bytes] | None = None
    seen: WitnessedTree | None = None

    def show(self, console: Console, asJson: bool) -> int:
        """Tell what is proved."""
        showRecord(console, self._fields(), self._lines(), asJson)
        return Exit.GOOD

    def _fields(self) -> Mapping[str, Any]:
        """The members of the JSON."""
        claims, grown = self.said.claims, self.grown
        later = {} if grown is None else {"size": grown[0].newer, "root": grown[1].hex()}
        return {
            "proved": True,
            "issuer": claims.issuer,
            "subject": claims.subject,
            "signatureChecked": self.isSigned,
            **self._contentFields(),
            "receipts": [
                {
                    "service": None if each.receipt.claims is None else each.receipt.claims.issuer,
                    "index": each.receipt.index,
                    "size": each.receipt.size,
                    "root": each.root.hex(),
                    "leaf": "sha256" if each.isHashed else "entry",
                    "key": each.key.kid.hex(),
                }
                for each in self.found
            ],
            "receiptsLeftOut": self.given - len(self.found),
            **({"laterTree": later} if later else {}),
            **({} if self.seen is None else _seenFields(self.seen)),
        }

    def _contentFields(self) -> Mapping[str, Any]:
        """The members about the content: what is signed of one that is elsewhere."""
        fields: dict[str, Any] = {"contentChecked": self.content is not None}
        envelope, payload = self.said.envelope, self.said.message.payload
        if envelope is not None:
            fields["content"] = {
                "hash": envelope.hashName or envelope.algorithm,
                "digest": None if payload is None else payload.hex(),
                "type": envelope.contentType,
                "location": envelope.location,
            }
        return fields

    def _contentLines(self) -> Iterator[str]:
        """The lines about the content."""
        envelope, payload = self.said.envelope, self.said.message.payload
        if self.content is not None:
            yield factLine("content", f"{quoted(str(self.content))} is that of the statement")
        if envelope is not None and payload is not None:
            name = envelope.hashName or f"hash {envelope.algorithm}"
            yield factLine("" if self.content else "content", f"{name} {payload.hex()}")
            if envelope.contentType is not None:
                yield factLine("", f"of the type {quoted(str(envelope.contentType))}")
            if envelope.location is not None:
                yield factLine("", f"at {quoted(envelope.location)}")

    def _lines(self) -> Iterator[str]:
        """The lines for people."""
        yield "PROVED: the statement is in the tree of the service"
        yield factLine("issuer", quoted(self.said.claims.issuer))
        yield factLine("subject", quoted(self.said.claims.subject))
        yield from self._contentLines()
        for each in self.found:
            receipt = each.receipt
            yield factLine("entry", f"{receipt.index} of a tree of {receipt.size}")
            yield factLine("root", each.root.hex())
            if receipt.claims is not None:
                yield factLine("service", quoted(receipt.claims.issuer))
                if receipt.claims.issuedAt is not None:
                    yield factLine("signed at", timeText(receipt.claims.issuedAt * 1000))
            yield factLine("key", each.key.kid.hex())
        if self.grown is not None:
            later, root = self.grown
            yield factLine("later tree", f"of {later.newer}, has all of the tree of {later.older}")
            yield factLine("its root", root.hex())
        if self.seen is not None:
            line, log = self.seen.line, self.seen.witnessed
            yield factLine("signed tree", f"of {line.size}, of the topic {quoted(line.topic)}")
            yield from starmap(factLine, witnessedLines(log))
        if self.given > len(self.found):
            count = counted(self.given - len(self.found), "receipt")
            yield factLine("left out", f"{count} by keys that are not given")
        if not self.isSigned:
            yield factLine("not checked", "the signature of the issuer: give --issuer-keys")
        if self.said.envelope is not None and self.content is None:
            yield factLine("not checked", "the content, which is elsewhere: give --content")
        yield factLine("not proved", "that the service shows the same tree to others")


def _seenFields(seen: WitnessedTree) -> Mapping[str, Any]:
    """The members of the JSON about a checkpoint."""
    line = seen.line
    tree = {"topic": line.topic, "size": line.size, "root": line.root.hex()}
    return {"signedTree": tree, **witnessedFields(seen.witnessed)}
