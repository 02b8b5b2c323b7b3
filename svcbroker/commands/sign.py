"""
C{svcbroker proof sign} and C{svcbroker proof keygen}: signatures of authors, offline, and keys for
them.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from ..errors import BrokerError
from ..files import writeNew
from ..model import TopicRule, checkExtensions, checkNormalised, checkTopicName, isIdempotencyKey
from .arguments import (
    CHAIN,
    EXTENSIONS,
    PATH,
    jsonOption,
    makeCommand,
    options,
    readExtensions,
    wholeNumber,
)
from .inputs import readAuthorKey
from .terminal import CommandError, Console, showRecord


@makeCommand(
    """\
    Sign an event as its author, offline.

    Writes the parameters of a publish that say who has signed it, as JSON: author, signature and
    signedAt. CONTENT is the event's content; without it, standard input is read, with every byte
    that comes. Nothing is sent. Publish the event with the same topic, content, extensions,
    idempotency key and expected sequence number, and with these parameters.
    """
)
@options(
    click.argument("content", required=False),
    click.option(
        "--key",
        "keyFile",
        type=PATH,
        required=True,
        metavar="FILE",
        help="The file with the author's private key: PEM, as svcbroker proof keygen and openssl "
        "genpkey -algorithm ed25519 make it.",
    ),
    click.option(
        "--chain",
        type=CHAIN,
        required=True,
        metavar="HASH",
        help="The id of the chain: the hash of its genesis.",
    ),
    click.option("--topic", required=True, metavar="NAME", help="The topic that the event is for."),
    EXTENSIONS,
    click.option("--idempotency-key", metavar="KEY", help="The idempotency key of the event."),
    click.option(
        "--expect",
        type=wholeNumber(0, 2**64 - 1, "is not a number in 64 bits"),
        metavar="NUMBER",
        help="The expected sequence number of the event: how many events the topic must have. It "
        "makes a statement of version 2.",
    ),
    click.option(
        "--time",
        "signedAt",
        type=wholeNumber(0, 2**64 - 1, "is not a number of milliseconds in 64 bits"),
        metavar="MILLISECONDS",
        help="When it is signed, in milliseconds since 1970. [default: now]",
    ),
)
def signCommand(
    console: Console,
    content: str | None,
    keyFile: Path,
    chain: bytes,
    topic: str,
    extensions: tuple[str, ...],
    idempotency_key: str | None,
    expect: int | None,
    signedAt: int | None,
) -> None:
    """Sign, and write the parameters."""
    if idempotency_key is not None and not isIdempotencyKey(idempotency_key):
        raise CommandError(
            "--idempotency-key has 1 to 64 characters of ASCII, none of them a space"
        )
    named = readExtensions(extensions)
    try:
        checkTopicName(topic, TopicRule.UTF8)
        checkNormalised(topic)
        checkExtensions(named)
    except BrokerError as error:
        raise CommandError(error.message) from None
    author = readAuthorKey(keyFile)
    if content is None:
        data = sys.stdin.buffer.read()
    else:
        try:
            data = content.encode("utf-8")
        except UnicodeEncodeError:
            raise CommandError("CONTENT is not UTF-8: give it on standard input") from None
    parameters = author.sign(
        chain=chain,
        topic=topic,
        content=data,
        extensions=named,
        idempotencyKey=idempotency_key,
        signedAt=int(time.time() * 1000) if signedAt is None else signedAt,
        expectedSequence=expect,
    )
    console.sayJson(parameters)


@makeCommand(
    """\
    Make a key with which an author signs events.

    Writes a new Ed25519 private key to FILE, which only its owner can read, and its public key to
    standard output. The file is what openssl genpkey -algorithm ed25519 makes: PEM of PKCS #8. A
    file that exists is not overwritten.

    With --encryption it is an identity of age instead, which opens events that others close to its
    recipient; the recipient is written to standard output. Events that are closed to an identity
    that is lost stay closed.
    """
)
@options(
    click.argument("path", metavar="FILE", type=PATH),
    click.option(
        "--encryption", "isIdentity", is_flag=True, help="Make an identity that opens events."
    ),
    jsonOption(),
)
def keygenCommand(console: Console, path: Path, isIdentity: bool, asJson: bool) -> None:
    """Write the key."""
    if isIdentity:
        _writeIdentity(console, path, asJson)
        return
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    writeNew(path, pem)
    public = key.public_key().public_bytes_raw().hex()
    showRecord(console, {"key": public, "file": str(path)}, [public], asJson)


def _writeIdentity(console: Console, path: Path, asJson: bool) -> None:
    from ..client._confidential import newIdentity

    try:
        identity, recipient = newIdentity()
    except ValueError as error:
        raise CommandError(str(error)) from None
    writeNew(path, f"# recipient: {recipient}\n{identity}\n".encode("ascii"))
    showRecord(console, {"recipient": recipient, "file": str(path)}, [recipient], asJson)
