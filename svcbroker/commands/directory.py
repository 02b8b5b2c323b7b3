"""
The directory of recipients on the log: an organisation publishes its recipients in the topic
C{$svc/recipients/NAME}, signed by its author key. The key is remembered at first use, as ssh does.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attrs import define

from ..errors import TopicNotFound
from ..files import readFile, writeNew
from ..proofs import ProofInvalid, ProvedEvent, readGenesis, verifyProof
from .inputs import recipientsIn
from .terminal import CommandError, Console, Exit

if TYPE_CHECKING:
    from ..client import Client

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
