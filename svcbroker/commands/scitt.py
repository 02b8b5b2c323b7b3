"""
C{svcbroker proof scitt}: checks a statement and its receipts offline.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..files import openFile
from ..proofs import ProofInvalid
from .arguments import PATH, jsonOption, makeCommand, options
from .prooftext import factLine
from .terminal import CommandError, Console, Exit, quoted, timeText

if TYPE_CHECKING:
    from ..proofs.scitt import ConsistencyReceipt, CoseKey, SignedStatement, VerifiedReceipt


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
    everything that the tree of the receipt has.

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
    asJson: bool,
) -> int:
    """Check the receipts, and tell what they prove."""
    try:
        from ..proofs import scitt
    except ImportError:
        raise CommandError("SCITT needs cbor2: pip install 'svcbroker[scitt]'") from None
    trusted = _readKeys(keys)
    ofIssuer = [] if issuerKeys is None else _readKeys(issuerKeys)
    try:
        said = scitt.SignedStatement.decode(_read(statement, scitt.MAX_MESSAGE))
        given = [*scitt.receiptsOf(said), *(_read(each, scitt.MAX_MESSAGE) for each in receipts)]
        if not given:
            raise ProofInvalid("the statement has no receipts: give --receipt")
        if ofIssuer:
            said.verify(ofIssuer)
        found = scitt.verifyReceipts(said, given, trusted, service)
        grown = None
        if consistency is not None:
            later = _read(consistency, scitt.MAX_MESSAGE)
            grown = scitt.verifyGrowth(found, later, trusted, service)
    except ProofInvalid as error:
        if asJson:
            console.say(json.dumps({"proved": False, "reason": str(error)}))
        else:
            console.say(f"NOT PROVED: {quoted(str(error))}")
        return Exit.BAD
    if asJson:
        told = dict(_fields(said, found, len(given), bool(ofIssuer)))
        if grown is not None:
            told["laterTree"] = {"size": grown[0].newer, "root": grown[1].hex()}
        console.say(json.dumps(told))
        return Exit.GOOD
    for line in _lines(said, found, grown, len(given), bool(ofIssuer)):
        console.say(line)
    return Exit.GOOD


def _read(path: Path, most: int) -> bytes:
    with openFile(path) as file:
        # One byte more shows that it is too long.
        return file.read(most + 1)


def _readKeys(path: Path) -> Sequence[CoseKey]:
    from ..proofs.scitt import MAX_HEADER, readKeys

    try:
        return readKeys(_read(path, MAX_HEADER))
    except ProofInvalid as error:
        raise CommandError(f"{path}: {error}") from None


def _fields(
    said: SignedStatement, found: Sequence[VerifiedReceipt], given: int, isSigned: bool
) -> Mapping[str, Any]:
    """What is proved, as JSON has it."""
    claims = said.claims
    return {
        "proved": True,
        "issuer": claims.issuer,
        "subject": claims.subject,
        "signatureChecked": isSigned,
        "receipts": [
            {
                "service": None if each.receipt.claims is None else each.receipt.claims.issuer,
                "index": each.receipt.index,
                "size": each.receipt.size,
                "root": each.root.hex(),
                "leaf": "sha256" if each.isHashed else "entry",
                "key": each.key.kid.hex(),
            }
            for each in found
        ],
        "receiptsLeftOut": given - len(found),
    }


def _lines(
    said: SignedStatement,
    found: Sequence[VerifiedReceipt],
    grown: tuple[ConsistencyReceipt, bytes] | None,
    given: int,
    isSigned: bool,
) -> Iterator[str]:
    """What is proved, for people."""
    yield "PROVED: the statement is in the tree of the service"
    yield factLine("issuer", quoted(said.claims.issuer))
    yield factLine("subject", quoted(said.claims.subject))
    for each in found:
        receipt = each.receipt
        yield factLine("entry", f"{receipt.index} of a tree of {receipt.size}")
        yield factLine("root", each.root.hex())
        if receipt.claims is not None:
            yield factLine("service", quoted(receipt.claims.issuer))
            if receipt.claims.issuedAt is not None:
                yield factLine("signed at", timeText(receipt.claims.issuedAt * 1000))
        yield factLine("key", each.key.kid.hex())
    if grown is not None:
        later, root = grown
        yield factLine("later tree", f"of {later.newer}, has all of the tree of {later.older}")
        yield factLine("its root", root.hex())
    if given > len(found):
        yield factLine("left out", f"{given - len(found)} receipts by keys that are not given")
    if not isSigned:
        yield factLine("not checked", "the signature of the issuer: give --issuer-keys")
    yield factLine("not proved", "that the service shows the same tree to others")
