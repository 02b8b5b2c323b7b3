"""
C{svcbroker pub}: publish events, also confidential ones.

The directory of recipients is on the log: an organisation publishes its recipients in the topic
C{$svc/recipients/NAME}, signed by its author key. The key is remembered at first use, as ssh does.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click
from attrs import define

from ..errors import BrokerError, TopicNotFound, TransactionTimeout
from ..files import readFile, writeNew
from .arguments import EXTENSIONS, PATH, Whole, jsonOption, options, readExtensions
from .clientcommand import RECIPIENTS, TO, clientCommand, contextsPath, namedFile, urlsOf
from .terminal import CommandError, Console, Exit, counted, progressBar

if TYPE_CHECKING:
    from ..client import Client, Published
    from ..proofs import ProvedEvent

TOPIC: Final = "$svc/recipients/"


def knownPath(contexts: Path) -> Path:
    """The file of known organisations, beside that of the contexts."""
    return contexts.with_name("known-recipients")


@define
class KnownOrganisation:
    """
    An organisation as it is remembered.

    @ivar chain: the id of the chain that its recipients are on.
    @ivar author: its author key.
    @ivar number: the number of the newest event that was seen.
    """

    chain: bytes
    author: bytes
    number: int


@define
class Directory:
    """
    Reads recipients of organisations from a broker's log.

    @ivar url: the broker's URL: what is remembered holds for it.
    @ivar path: the file of what is remembered.
    """

    console: Console
    client: Client
    url: str
    path: Path

    def find(self, name: str) -> list[str]:
        """
        The newest recipients of an organisation. They are signed by the key that is remembered, and
        proved to be in the chain that is remembered.

        @raise CommandError: they are not, or there are none.
        """
        # Only for this: it imports cryptography.
        from .inputs import recipientsIn

        if name.split() != [name] or set(name) & set("/#+"):
            raise CommandError(
                f"--to: org:{name}: a name of an organisation is one level of a topic"
            )
        topic = TOPIC + name
        before = self._read().get((self.url, name))
        proved = self._prove(topic, None if before is None else before.chain)
        assert proved.author is not None and proved.content is not None
        found = KnownOrganisation(proved.chain, proved.author.key, proved.sequence)
        if before is None:
            self.console.warn(
                f"{name} is not known here yet: its author key {found.author.hex()} is remembered "
                f"in {self.path}; compare it"
            )
        elif before.author != found.author:
            raise CommandError(
                f"the author key of {name} has changed: {before.author.hex()} is remembered in "
                f"{self.path}, and {found.author.hex()} has signed {proved.eventId}. If the "
                "organisation says so, remove its line there",
                Exit.BAD,
            )
        elif found.number < before.number:
            raise CommandError(
                f"the broker offers older recipients of {name}: event number {found.number}, and "
                f"number {before.number} was seen before",
                Exit.BAD,
            )
        recipients = recipientsIn(proved.content, f"event {proved.eventId}")
        if before != found:
            self._remember(name, found)
        return [each for those in recipients.values() for each in those]

    def _prove(self, topic: str, chain: bytes | None) -> ProvedEvent:
        """
        The newest event of a topic, which is signed by its only author.

        @param chain: the id of the chain; C{None} for that of which the broker tells.
        @raise CommandError: it is not proved, or not signed so.
        """
        # Only for this: it imports cryptography.
        from ..proofs import ProofInvalid, readGenesis, verifyProof

        try:
            authors = self.client.state(topic).authors or []
        except TopicNotFound:
            raise CommandError(f"there are no recipients: no topic {topic}", Exit.BAD) from None
        newest = [*self.client.events(topic, after="OFFSET_LAST", reverse=True, limit=1)]
        if not newest:
            raise CommandError(f"there are no recipients in {topic}", Exit.BAD)
        eventId = newest[0].eventId
        try:
            if chain is None:
                chain = readGenesis(self.client.genesis()).chain
            proved = verifyProof(self.client.proof(eventId), chain=chain)
        except ProofInvalid as error:
            raise CommandError(
                f"the recipients in {topic} are not proved: {error}", Exit.BAD
            ) from None
        isSigned = proved.author is not None and authors == [proved.author.key.hex()]
        if proved.eventId != eventId or proved.topic != topic or proved.content is None:
            raise CommandError(f"the recipients in {topic} are not proved: {eventId}", Exit.BAD)
        if not isSigned:
            raise CommandError(
                f"{topic} has not one author who has signed {eventId}: open it with one --author",
                Exit.BAD,
            )
        return proved

    def _read(self) -> Mapping[tuple[str, str], KnownOrganisation]:
        try:
            lines = readFile(self.path).decode("utf-8").splitlines()
        except FileNotFoundError:
            return {}
        known = {}
        for number, line in enumerate(lines, 1):
            words = line.split()
            try:
                url, name, chain, author, seen = words
                found = KnownOrganisation(bytes.fromhex(chain), bytes.fromhex(author), int(seen))
            except ValueError:
                raise CommandError(
                    f"{self.path}, line {number}: it is not URL NAME CHAIN KEY NUMBER"
                ) from None
            known[url, name] = found
        return known

    def _remember(self, name: str, found: KnownOrganisation) -> None:
        """
        Replace the file as a whole. Commands that run beside this one lose nothing of theirs, and
        nothing that is remembered becomes older.
        """
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(self.path.with_name(f"{self.path.name}.lock"), "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = dict(self._read())
            there = known.get((self.url, name))
            if there is not None and there.author == found.author and there.number > found.number:
                return
            known[self.url, name] = found
            lines = [
                f"{url} {name} {each.chain.hex()} {each.author.hex()} {each.number}\n"
                for (url, name), each in known.items()
            ]
            made = self.path.with_name(f"{self.path.name}.{os.getpid()}")
            made.unlink(missing_ok=True)
            writeNew(made, "".join(lines).encode("utf-8"))
            made.replace(self.path)


_PIECE: Final = 256 * 1024


@clientCommand(
    """\
    Publish an event to an open topic.

    It returns when the event is final and on disk, and writes the event's id. Without CONTENT
    standard input is read: all of it is one event, or with --lines each line that is not blank
    is one. The call is repeated with its idempotency key until its outcome is known, so that the
    event is published once.

    \b
    svcbroker pub weather/zurich 21.5 --ext unit=C
    tail -f readings.log | svcbroker pub weather/zurich --lines
    svcbroker pub orders/new 12.50 --to bank --to auditor --recipients partners.txt
    """
)
@options(
    click.argument("topic"),
    click.argument("content", required=False),
    click.option("--lines", is_flag=True, help="Publish each line of standard input."),
    EXTENSIONS,
    click.option(
        "--sign",
        type=PATH,
        metavar="FILE",
        help="Sign with the author's key in this PEM file. The passphrase of an encrypted one is "
        "asked for.",
    ),
    TO,
    RECIPIENTS,
    click.option(
        "--idempotency-key",
        "key",
        metavar="KEY",
        help="Publish once, however often this command is run; with --lines KEY-1 is that of "
        "the first line, and so on.",
    ),
    click.option(
        "--expect",
        type=Whole(min=0),
        metavar="NUMBER",
        help="Publish only if the topic has this many events.",
    ),
    jsonOption("Show what was published as JSON."),
)
def command(
    console: Console,
    client: Client,
    topic: str,
    content: str | None,
    lines: bool,
    extensions: tuple[str, ...],
    to: tuple[str, ...],
    recipients: str | None,
    sign: Path | None,
    key: str | None,
    expect: int | None,
    asJson: bool,
) -> None:
    """Publish, and write the ids."""
    given: dict[str, Any] = {"extensions": readExtensions(extensions)}
    if sign is not None:
        # Only for this: it imports cryptography.
        from .inputs import readAuthorKey

        given["author"] = readAuthorKey(sign)
    if to:
        given["recipients"] = _recipients(console, client, to)
    if key == "":
        raise CommandError("--idempotency-key is empty")
    if lines:
        if content is not None or expect is not None:
            raise CommandError("--lines goes with neither CONTENT nor --expect")
        _publishLines(console, client, topic, key, given, asJson)
        return
    if key is not None:
        given["idempotencyKey"] = key
    try:
        published = client.publish(topic, _content(content), expectedSequence=expect, **given)
    except BrokerError as error:
        if not _mayBePublished(error):
            raise
        raise CommandError(
            f"{error.message}: whether the event was published is not known; a command that is "
            "repeated with its --idempotency-key publishes it once",
            Exit.BAD,
        ) from None
    console.say(_describe(published, asJson))


def _recipients(console: Console, client: Client, to: Sequence[str]) -> Sequence[str]:
    """
    The recipients that C{--to} says.

    @raise CommandError: one is none, or pyrage is not installed.
    """
    # Only for this: they import cryptography.
    from ..client._confidential import checkRecipients
    from .inputs import readRecipients

    url = urlsOf(click.get_current_context().params, os.environ)[0][0]
    directory = Directory(console, client, url, knownPath(contextsPath(os.environ)))
    try:
        return checkRecipients(readRecipients(to, namedFile("recipients"), directory.find))
    except ValueError as error:
        raise CommandError(str(error)) from None


def _mayBePublished(error: BrokerError) -> bool:
    """Whether an error leaves open whether an event was published."""
    from ..client import Unreachable

    return error.isSent if isinstance(error, Unreachable) else isinstance(error, TransactionTimeout)


def _keyOf(key: str | None, line: int) -> Mapping[str, Any]:
    """The idempotency key of a line, if keys are given."""
    return {} if key is None else {"idempotencyKey": f"{key}-{line}"}


def _publishLines(
    console: Console,
    client: Client,
    topic: str,
    key: str | None,
    given: Mapping[str, Any],
    asJson: bool,
) -> None:
    from ..client import Publication

    number = 0
    with progressBar(console, "publishing", "events", isResultShown=True) as report:
        for those in _pieces(sys.stdin.buffer):
            numbered = [(each, line) for each, line in enumerate(those, number + 1) if line.strip()]
            outcomes = client.publishMany(
                Publication(topic, line, **given, **_keyOf(key, each)) for each, line in numbered
            )
            failed = []
            for (each, _), outcome in zip(numbered, outcomes, strict=True):
                if isinstance(outcome, BrokerError):
                    failed.append((each, outcome))
                else:
                    console.say(_describe(outcome, asJson))
            console.output.flush()
            if failed:
                each, error = failed[0]
                isOpen = any(_mayBePublished(error) for _, error in failed)
                raise CommandError(
                    f"{counted(len(failed), 'line')} not {'known to be ' * isOpen}published, the "
                    f"first is line {each}: {error.message} ({error.code})",
                    Exit.BAD,
                )
            number += len(those)
            report(number, None)


def _pieces(source: BinaryIO) -> Iterator[list[bytes]]:
    """The lines of a stream as they come: those that are there together are published together."""
    rest = b""
    while piece := source.read1(_PIECE):  # type: ignore[attr-defined]
        *lines, rest = (rest + piece).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


def _content(content: str | None) -> bytes:
    if content is None:
        if sys.stdin.isatty():
            raise CommandError("CONTENT is missing: give it, or pipe it in")
        return sys.stdin.buffer.read()
    try:
        return content.encode("utf-8")
    except UnicodeEncodeError:
        raise CommandError("CONTENT is not UTF-8: give it on standard input") from None


def _describe(published: Published, asJson: bool) -> str:
    if not asJson:
        return published.eventId
    return json.dumps(
        {
            "topic": published.topic,
            "eventId": published.eventId,
            "idempotencyKey": published.idempotencyKey,
        }
    )
