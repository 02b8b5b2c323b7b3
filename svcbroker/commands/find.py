"""
C{svcbroker proof find}: who has published a document, when and where, with the proof; or the proof
that nobody has published it to a topic.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import click
from attrs import frozen

from ..errors import BrokerError, HeightUnknown
from ..files import openFile
from ..model import EXTENSION_PREFIX, isPattern
from .arguments import Whole, jsonOption, options
from .clientcommand import clientCommand
from .prove import TRUSTED, FetchedProof, trustedChain
from .reading import lineText, sinceTime
from .terminal import CommandError, Console, Exit, counted, notProved, progressBar, quoted, reported

if TYPE_CHECKING:
    from ..client import Client, Event
    from ..proofs import ProvedEvent

_HEX: Final = re.compile(r"[0-9a-fA-F]{64}")
_PIECE: Final = 1 << 20
_NOTHING: Final = (
    "This proves nothing: it may be in topics that you may not read, in other bytes, closed, or "
    "erased. With --topic and --prove-absence it is proved of one topic."
)


@clientCommand(
    """\
    Find who has published a document, when and where, with its proof.

    FILE is hashed here and not sent; - is standard input. The broker looks into its index (its
    setting find), and each event that it names is proved as by svcbroker prove. Events can also be
    found by their authors, and by the extensions that the setting index names.

    Not to be found proves nothing. With --prove-absence, all events of one topic are read with
    their proofs, and that proves that none of them is this document.

    \b
    svcbroker proof find contract.pdf
    svcbroker proof find --extension order-id=4711 --topic 'orders/#' --since 30d
    svcbroker proof find contract.pdf --topic contracts --prove-absence --genesis genesis.json
    """
)
@options(
    click.argument("path", metavar="[FILE]", required=False),
    click.option("--hash", "digest", metavar="HEX", help="Instead: the SHA-256 of the content."),
    click.option("--author", metavar="KEY", help="Only events that this public key has signed."),
    click.option(
        "--extension",
        "extensions",
        metavar="NAME=VALUE",
        multiple=True,
        help="Only events with this extension. It may come again.",
    ),
    click.option("--topic", metavar="PATTERN", help="Only events of these topics."),
    click.option(
        "--since", metavar="TIME", help="Only those not before: 90s, 5m, 1h, 2d; or a time."
    ),
    click.option("--until", metavar="TIME", help="Only those before, likewise."),
    click.option(
        "--limit",
        type=Whole(min=1, max=10_000),
        default=100,
        show_default=True,
        metavar="NUMBER",
        help="Find so many events at most.",
    ),
    click.option(
        "--prove-absence",
        "isAbsence",
        is_flag=True,
        help="Prove that no event of the topic is this document.",
    ),
    *TRUSTED,
    jsonOption("Show each event, and what was not found, as a line of JSON."),
)
def command(
    console: Console,
    client: Client,
    path: str | None,
    digest: str | None,
    author: str | None,
    extensions: tuple[str, ...],
    topic: str | None,
    since: str | None,
    until: str | None,
    limit: int,
    isAbsence: bool,
    genesis: str | None,
    checkpoint: str | None,
    asJson: bool,
) -> int:
    """Find events and prove them, or prove that there are none."""
    hash = _hashOf(path, digest)
    if isAbsence:
        if hash is None or topic is None or isPattern(topic):
            raise CommandError("--prove-absence needs a FILE or --hash, and one --topic")
        if author or extensions or since or until or checkpoint:
            raise CommandError("--prove-absence is about all events of the topic")
        return _proveAbsence(console, client, hash, topic, genesis, asJson)
    given: dict[str, Any] = {
        "hash": hash,
        "author": None if author is None else _bytesOf("--author", author),
        "extensions": _extensionsOf(extensions),
        "topic": topic,
        "limit": limit,
    }
    if hash is None and author is None and not extensions:
        raise CommandError("give FILE, --hash, --author or --extension; see also: svcbroker events")
    if since is not None:
        given["after"] = sinceTime(since)
    if until is not None:
        given["until"] = sinceTime(until, option="--until")
    found = client.find(**given)
    outcome = Exit.GOOD
    wanted = _Wanted(hash, given["author"], given["extensions"])
    for event in found.events:
        if not _show(console, client, event, wanted, genesis, checkpoint, asJson):
            outcome = Exit.BAD
    if found.events:
        if not found.atEnd:
            console.warn(f"there may be more: these are the first {len(found.events)}")
        return outcome
    if asJson:
        console.sayJson({"found": False, "height": found.height})
    else:
        console.say(f"not found, up to block {found.height} of {found.chainHeight}.")
        console.say(_NOTHING)
    return Exit.BAD


def _hashOf(path: str | None, digest: str | None) -> bytes | None:
    """The SHA-256 of a file that is not sent, or as it is given."""
    if path is not None and digest is not None:
        raise CommandError("give FILE or --hash, not both")
    if digest is not None:
        return _bytesOf("--hash", digest)
    if path is None:
        return None
    hash = sha256()
    try:
        with nullcontext(sys.stdin.buffer) if path == "-" else openFile(path) as file:
            while piece := file.read(_PIECE):
                hash.update(piece)
        return hash.digest()
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from None


def _bytesOf(option: str, text: str) -> bytes:
    if _HEX.fullmatch(text) is None:
        raise CommandError(f"{option}: {quoted(text)} is not 64 hex digits")
    return bytes.fromhex(text)


def _extensionsOf(texts: tuple[str, ...]) -> Mapping[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise CommandError(f"--extension: {quoted(text)} is not NAME=VALUE")
        found[name if name.startswith(EXTENSION_PREFIX) else EXTENSION_PREFIX + name] = value
    return found


@frozen
class _Wanted:
    """The conditions of a search, checked on each answer: the broker is not trusted."""

    hash: bytes | None
    author: bytes | None
    extensions: Mapping[str, str]

    def matches(self, proved: ProvedEvent) -> bool:
        """Whether a proved event meets the conditions."""
        content, author = proved.content, proved.author
        return (
            content is not None
            and (self.hash is None or sha256(content).digest() == self.hash)
            and (self.author is None or (author is not None and author.key == self.author))
            and self.extensions.items() <= proved.extensions.items()
        )


def _show(
    console: Console,
    client: Client,
    event: Event,
    wanted: _Wanted,
    genesis: str | None,
    checkpoint: str | None,
    asJson: bool,
) -> bool:
    """
    Show a found event with its proof.

    @return: whether the proof holds.
    """
    from ..proofs import ProofInvalid
    from .prooftext import eventFields, eventLines

    try:
        fetched = FetchedProof.fetch(client, event.eventId, genesis, checkpoint)
        proved = fetched.verify()
        if not wanted.matches(proved):
            raise ProofInvalid("the event is in the log, and is not what was looked for")
    except (ProofInvalid, BrokerError) as error:
        if asJson:
            fields = {"found": True, "eventId": event.eventId, "topic": event.topic}
            console.sayJson({**fields, "proved": False, "reason": str(error)})
        else:
            console.say(lineText(event, ""))
            console.say(f"NOT PROVED: {quoted(str(error))}")
        return False
    if asJson:
        told = {"found": True, "proved": True, **eventFields(proved), "trusted": fetched.trusted}
        console.sayJson(told)
        return True
    for line in eventLines(proved):
        console.say(line)
    for each in fetched.trusted:
        console.say(f"  {'trusted':12} {quoted(each)}")
    return True


def _proveAbsence(
    console: Console, client: Client, hash: bytes, topic: str, genesis: str | None, asJson: bool
) -> int:
    """Read all events of a topic with their proofs, and tell whether one is the document."""
    from ..proofs import ProofInvalid, verifyAbsence, verifyTopic

    chain, trusted = trustedChain(client, genesis)
    try:
        proved = verifyTopic(client.topicProof(topic), chain=chain)
        if proved.topic != topic:
            raise ProofInvalid("the proof is of another topic")
        with progressBar(console, "verifying", "proofs") as report:
            proofs = reported(_proofsOf(client, topic, proved.block.height), report, proved.count)
            absence = verifyAbsence(proved, proofs, hash)
    except ProofInvalid as error:
        return notProved(console, error, asJson, "absent")
    isAbsent = not absence.found and not absence.erased
    if asJson:
        fields = {"topic": topic, "events": proved.count, "block": str(proved.block)}
        counts = {"erased": absence.erased, "closed": absence.closed}
        found = [*absence.found]
        told = {"absent": isAbsent, **fields, **counts, "found": found, "trusted": [trusted]}
        console.sayJson(told)
        return Exit.GOOD if isAbsent else Exit.BAD
    events = f"{counted(proved.count, 'event')} that topic {quoted(topic)} has"
    if absence.found:
        console.say(f"NOT ABSENT: of the {events}, this document is {', '.join(absence.found)}.")
    elif absence.erased:
        console.say(
            f"NOT PROVED: of the {events}, {absence.erased} have no content any more; of these it "
            "cannot be said. No other one is this document."
        )
    else:
        console.say(f"PROVED: none of the {events} at checkpoint {proved.block} is this document.")
    if absence.closed:
        console.say(
            f"  closed       {counted(absence.closed, 'content')}: it may be inside of them"
        )
    console.say(f"  trusted      {quoted(trusted)}")
    return Exit.GOOD if isAbsent else Exit.BAD


def _proofsOf(client: Client, topic: str, height: int) -> Iterator[bytes]:
    """The proofs of all events of a topic up to a block, in their order."""
    for event in client.events(topic, tombstones=True):
        if event.height > height:
            return
        try:
            yield client.proof(event.eventId, trusted=height)
        except HeightUnknown:
            raise CommandError("the broker is behind what it has told: try again") from None
