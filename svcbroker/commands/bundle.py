"""
C{svcbroker proof bundle} and C{proof stamp}: the proofs of events in one file, for third parties
without a broker, and the time of an outside clock for it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlsplit

import click
from attrs import evolve

from ..errors import EventErased, TopicNotFound
from ..files import readFile, writeNew
from .arguments import EVENT, FILE, PATH, makeCommand, options
from .clientcommand import IDENTITY, clientCommand, namedFile, runReactor
from .terminal import CommandError, Console, Exit, counted, quoted

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

    from ..client import Client, Event
    from ..proofs import ProvedEvent
    from ..proofs.bundle import Bundle, ErasureNote

_OUTPUT: Final = click.option(
    "--output", metavar="FILE", help="The new file to write. [default: standard output]"
)
TSA_ROOTS: Final = click.option(
    "--tsa-roots",
    "roots",
    metavar="FILE",
    type=FILE,
    help="The certificates (PEM) that are trusted for time stamps.",
)
_TSA_TIMEOUT: Final = 30.0


@clientCommand(
    """\
    Put the proofs of events into one file, with a page that verifies them without a network.

    Each event is proved to be in the log, and seen by the witnesses of the policy. The file is a
    ZIP archive for a court, an auditor or a partner: README.txt in it says how it is checked.
    Without events, their ids are read from standard input.

    \b
    svcbroker proof bundle 7ba3f518-1-12 7ba3f518-2-13 --policy policy > case.zip
    svcbroker verify case.zip --policy policy
    """
)
@options(
    click.argument("events", metavar="[EVENT...]", nargs=-1, type=EVENT),
    click.option(
        "--policy",
        "policyPath",
        metavar="FILE",
        type=FILE,
        help="Whose signatures are wanted; it is put into the file. [default: the log's key alone]",
    ),
    click.option(
        "--tsa",
        metavar="URL",
        help="An authority that stamps the checkpoint with its time (RFC 3161); needs --tsa-roots.",
    ),
    TSA_ROOTS,
    click.option(
        "--reveal",
        "isRevealed",
        is_flag=True,
        help="Add the keys of all closed events of the bundle that --identity opens.",
    ),
    click.option(
        "--withhold",
        "withheld",
        metavar="EVENT",
        type=EVENT,
        multiple=True,
        help="Leave the content of this event out, and its key: it is proved to be there, and "
        "nothing that it says. It may come again.",
    ),
    IDENTITY,
    click.option(
        "--receipts",
        "receiptTopics",
        metavar="PATTERN",
        help="Add the receipts of recipients for these events, published to such topics: "
        "'receipts/#'.",
    ),
    _OUTPUT,
)
def command(
    console: Console,
    client: Client,
    events: tuple[str, ...],
    policyPath: Path | None,
    tsa: str | None,
    roots: Path | None,
    isRevealed: bool,
    withheld: tuple[str, ...],
    receiptTopics: str | None,
    output: str | None,
) -> None:
    """Write a bundle."""
    from ..proofs import ProofInvalid
    from ..proofs.bundle import Bundle
    from ..proofs.tlog import Policy
    from .inputs import readPolicy

    ids = list(dict.fromkeys(events or sys.stdin.read().split()))
    if not ids:
        raise CommandError("give the ids of events, or write them to standard input")
    unknown = [each for each in withheld if each not in ids]
    if unknown:
        raise CommandError(f"--withhold: {unknown[0]} is not among the events")
    if (tsa is None) != (roots is None):
        raise CommandError("give both --tsa and --tsa-roots, or none")
    trusted = None if roots is None else readRoots(roots)
    _checkOutput(console, output)
    if policyPath is None:
        key = json.loads(client.readLog("keys"))["key"]
        policyText = f"log {key}\nquorum none\n".encode()
        policy = Policy.parse(policyText)
        console.warn("no witness is asked for: give --policy with those that the reader trusts")
    else:
        policy, policyText = readPolicy(policyPath), readFile(policyPath)
    if receiptTopics is not None:
        ids += _receiptsFor(console, client, ids, receiptTopics)
    proofs = {each: client.readLog(f"proof?eventId={quote(each, safe='')}") for each in ids}
    bundle = Bundle(proofs=proofs, policy=policyText)
    try:
        found = bundle.verify(policy)
    except ProofInvalid as error:
        raise CommandError(str(error), Exit.BAD) from None
    gone = [each.event.eventId for each in found if each.event.content is None]
    bundle = evolve(bundle, erasures=_erasuresOf(client, gone))
    if isRevealed:
        shown = [each.event for each in found if each.event.eventId not in withheld]
        bundle = evolve(bundle, reveals=_keysOf(shown))
    if withheld:
        bundle = _withholding(bundle, set(withheld))
    if tsa is not None and trusted is not None:
        bundle = evolve(bundle, timestamps=_stamped(bundle.proofs.values(), tsa, trusted))
    _write(console, bundle, output)


@makeCommand(
    """\
    Add the time stamps of an authority to a bundle.

    No broker is asked: anybody who has the bundle can have it stamped (RFC 3161), and so show by a
    clock that is not the operator's when it was there at the latest. The proofs are verified first,
    by the policy in the bundle.

    \b
    svcbroker proof stamp case.zip --tsa https://tsa.example/ --tsa-roots roots.pem > stamped.zip
    svcbroker verify stamped.zip --policy policy --tsa-roots roots.pem
    """
)
@options(
    click.argument("path", metavar="BUNDLE", type=PATH),
    click.option("--tsa", metavar="URL", required=True, help="The authority."),
    TSA_ROOTS,
    _OUTPUT,
)
def stampCommand(
    console: Console, path: Path, tsa: str, roots: Path | None, output: str | None
) -> None:
    """Write a bundle with the time stamps."""
    from ..chain import Malformed
    from ..proofs import ProofInvalid
    from ..proofs.bundle import Bundle
    from ..proofs.tlog import Policy

    if roots is None:
        raise CommandError("--tsa-roots is needed: a stamp that nobody trusts is worth nothing")
    trusted = readRoots(roots)
    _checkOutput(console, output)
    try:
        bundle = Bundle.decode(readFile(path))
        bundle.verify(Policy.parse(bundle.policy))
    except (Malformed, ProofInvalid) as error:
        raise CommandError(f"{path}: {error}", Exit.BAD) from None
    if bundle.timestamps:
        raise CommandError(f"{path} has time stamps, which would be lost: stamp the file itself")
    _write(
        console, evolve(bundle, timestamps=_stamped(bundle.proofs.values(), tsa, trusted)), output
    )


def _receiptsFor(
    console: Console, client: Client, ids: Sequence[str], pattern: str
) -> Sequence[str]:
    """The ids of receipts: of each recipient, the first one that covers an event."""
    from ..model import EventId
    from ..proofs import ProofInvalid, ReceiptReader

    events = [client.getEvent(each) for each in ids]
    reader = ReceiptReader(bytes.fromhex(client.checkpoint().chain))
    found: dict[tuple[str, str, str], str] = {}
    names = set()
    for event in client.events(pattern):
        try:
            taken = reader.take(
                event.topic, event.eventId, event.content, event.author, event.signedAt
            )
        except ProofInvalid as error:
            console.warn(f"{event.eventId} is not believed, and left out: {error}")
            continue
        names.add(taken.recipient)
        for each in events:
            if taken.receipt.covers(each.topic, EventId.parse(each.eventId)):
                found.setdefault((taken.recipient, taken.author, each.eventId), taken.eventId)
    found |= {(topic, "", ""): id for topic, id in _expectations(client, events)}
    for each in events:
        without = names - {recipient for recipient, _, id in found if id == each.eventId}
        for name in sorted(without):
            console.warn(f"{quoted(name)} has signed no receipt for {each.eventId}")
    return [each for each in dict.fromkeys(found.values()) if each not in ids]


def _expectations(client: Client, events: Sequence[Event]) -> Iterator[tuple[str, str]]:
    """The topics of events, and the newest events that say whose receipts are expected there."""
    from ..proofs import EXPECTED

    for topic in {each.topic for each in events}:
        with suppress(TopicNotFound):
            for each in client.events(EXPECTED + topic, after="OFFSET_LAST", reverse=True, limit=1):
                yield topic, each.eventId


def _checkOutput(console: Console, output: str | None) -> None:
    if output is None and console.output.isatty():
        raise CommandError("give --output, or send standard output to a file")


def _write(console: Console, bundle: Bundle, output: str | None) -> None:
    try:
        data = bundle.encode()
    except ValueError as error:
        raise CommandError(f"{error}: make several bundles") from None
    if output is None:
        console.output.buffer.write(data)
    else:
        writeNew(output, data)
    console.warn(f"{counted(len(bundle.proofs), 'event')}, {counted(len(data), 'byte')}")


def _withholding(bundle: Bundle, ids: Collection[str]) -> Bundle:
    from ..proofs import ProofInvalid

    try:
        return bundle.withholding(ids)
    except ProofInvalid as error:
        raise CommandError(f"--withhold: {error}", Exit.BAD) from None


def _keysOf(events: Iterable[ProvedEvent]) -> Mapping[str, str]:
    """
    The keys of closed events that the identities open.

    @raise CommandError: there are no identities, or they open none.
    """
    from ..proofs import AgeFile, NotOpened, openWithKey
    from .inputs import readIdentityFile

    path = namedFile("identity")
    if path is None:
        raise CommandError("--reveal needs --identity")
    identities = readIdentityFile(path)
    found = {}
    for each in events:
        if each.content is not None and each.isClosed:
            with suppress(NotOpened):
                key = AgeFile.parse(each.content).fileKey(identities)
                openWithKey(each.content, each.extensions, key)
                found[each.eventId] = key.hex()
    if not found:
        raise CommandError("no event that is shown is closed to this identity", Exit.BAD)
    return found


def _erasuresOf(client: Client, ids: Iterable[str]) -> Mapping[str, ErasureNote]:
    """Ask the broker about events whose contents are not in their proofs."""
    from ..proofs.bundle import ErasureNote

    found = {}
    for each in ids:
        try:
            client.getEvent(each)
        except EventErased as error:
            found[each] = ErasureNote(
                timestamp=error.time,
                account=error.account,
                reason=error.reason,
                transHash=f"0x{error.transaction.hex()}",
            )
    return found


def readRoots(path: Path) -> Sequence[Certificate]:
    """
    The certificates that are trusted for time stamps.

    @raise CommandError: they cannot be read, or the library is not installed.
    """
    from cryptography.x509 import load_pem_x509_certificates

    try:
        data = readFile(path)
        import rfc3161_client  # noqa: F401

        return load_pem_x509_certificates(data)
    except ImportError:
        raise CommandError("time stamps need: pip install 'svcbroker[timestamps]'") from None
    except OSError as error:
        raise CommandError(f"--tsa-roots: cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise CommandError(f"--tsa-roots: {path} has no certificate in PEM") from None


def _stamped(
    proofs: Iterable[bytes], url: str, roots: Sequence[Certificate]
) -> Mapping[str, bytes]:
    """The time stamps of the checkpoints in proofs, by their names."""
    from twisted.web.http_headers import Headers

    from ..net.http import HttpError, makeClient, readBody
    from ..proofs.bundle import MAX_STAMP, REQUEST_TYPE, StampRefused, requestStamp, stampName
    from ..proofs.tlog import LogProof

    where, authorization = splitCredentials(url)
    headers = Headers({"Content-Type": [REQUEST_TYPE], "User-Agent": ["svcbroker"]})
    if authorization is not None:
        headers.addRawHeader(b"Authorization", authorization)
    texts = {LogProof.decode(each).checkpoint.text for each in proofs}

    async def stampAll(reactor: Any) -> Mapping[str, bytes]:
        client = makeClient(reactor, maxBody=MAX_STAMP)

        async def ask(request: bytes) -> bytes:
            answer = await client.request(
                *("POST", where),
                headers=headers,
                data=request,
                timeout=_TSA_TIMEOUT,
                maxBody=MAX_STAMP,
            )
            if answer.code != 200:
                raise CommandError(f"--tsa: {where} answered with HTTP status {answer.code}")
            return await readBody(answer)

        return {stampName(text): await requestStamp(text, roots, ask) for text in texts}

    try:
        return runReactor(stampAll)
    except HttpError as error:
        raise CommandError(f"--tsa: {where} {error}") from None
    except StampRefused as error:
        raise CommandError(f"--tsa: {where}: {error}", Exit.BAD) from None


def splitCredentials(url: str) -> tuple[str, bytes | None]:
    """
    A URL without the name and password in it, and the value of C{Authorization} that they make.

    @raise CommandError: it is no URL of HTTP.
    """
    from ..net.http import basicAuthorization

    try:
        parts = urlsplit(url)
        host, password = parts.hostname, unquote(parts.password or "")
        isHttp = parts.scheme in ("http", "https") and parts.port != 0
    except ValueError:
        host, password, isHttp = None, "", False
    if not host or not isHttp or not url.isascii() or not url.isprintable() or " " in url:
        raise CommandError("--tsa: give a URL such as https://tsa.example/")
    where = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()
    if parts.username is None:
        return where, None
    return where, basicAuthorization(unquote(parts.username), password)
