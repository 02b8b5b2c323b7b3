"""
C{svcbroker prove} and C{svcbroker reveal}: get the proof of an event from a broker, check it, and
open the event for others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click
from attrs import evolve, frozen

from ..files import readFile, writeNew
from ..model import EventId
from .arguments import EVENT, jsonOption, options
from .clientcommand import IDENTITY, clientCommand, namedFile
from .terminal import CommandError, Console, Exit, notProved, quoted

if TYPE_CHECKING:
    from ..client import Client
    from ..proofs import Checkpoint, ProvedEvent

TRUSTED: Final = (
    click.option("--genesis", metavar="FILE", help="The genesis that is trusted."),
    click.option("--checkpoint", metavar="HEIGHT:HASH", help="A block that is trusted."),
)


@frozen
class FetchedProof:
    """
    The proof of an event from the broker, with the genesis and checkpoints to check it by.

    @ivar trusted: these, for people.
    """

    event: str
    proof: bytes
    chain: bytes | None
    checkpoint: Checkpoint | None
    trusted: Sequence[str]

    @classmethod
    def fetch(
        cls, client: Client, event: str, genesis: str | None, checkpoint: str | None
    ) -> FetchedProof:
        """Read the genesis or checkpoint that is trusted, and get the proof."""
        from ..proofs import Checkpoint

        try:
            known = None if checkpoint is None else Checkpoint.parse(checkpoint)
        except ValueError:
            raise CommandError(f"--checkpoint: {checkpoint!r} is not HEIGHT:HASH") from None
        chain, trusted = None, [] if known is None else [f"checkpoint {known}"]
        if known is None or genesis is not None:
            chain, words = trustedChain(client, genesis)
            trusted.append(words)
        # A checkpoint before the event covers no proof: verifying any proof of the event says so.
        isCovered = known is not None and known.height >= EventId.parse(event).height
        height = known.height if known is not None and isCovered else None
        return cls(event, client.proof(event, trusted=height), chain, known, trusted)

    def verify(self) -> ProvedEvent:
        """
        Check the proof.

        @raise ProofInvalid: it does not hold.
        """
        from ..proofs import ProofInvalid, verifyProof

        proved = verifyProof(self.proof, chain=self.chain, checkpoint=self.checkpoint)
        if proved.eventId != self.event:
            raise ProofInvalid("the proof is of another event")
        return proved


def trustedChain(client: Client, genesis: str | None) -> tuple[bytes, str]:
    """
    The id of the chain that is trusted, and what says so, for people.

    @param genesis: the file of its genesis; C{None} for the one that the broker tells.
    @raise CommandError: the file has none.
    """
    from ..proofs import ProofInvalid, readGenesis

    try:
        if genesis is not None:
            return readGenesis(readFile(genesis)).chain, f"the genesis in {genesis}"
        return readGenesis(client.genesis()).chain, "the genesis that this broker tells"
    except ProofInvalid as error:
        raise CommandError(f"{genesis or 'the broker'}: {error}") from None


@clientCommand(
    """\
    Get the proof of an event from the broker, and check it.

    Say what you trust: the genesis that you have kept, or a checkpoint. Without either, the
    genesis that this broker tells is used, which only shows that the broker does not contradict
    itself. svcbroker verify checks the proof again, offline.

    With a checkpoint the proof leads to its block, which is the event's or a later one, and has no
    signatures: svcbroker verify needs the same checkpoint for it.

    \b
    svcbroker prove 7ba3f518-1-1 --genesis genesis.json --output proof.json
    svcbroker prove 7ba3f518-1-1 --without-content --output proof.json
    """
)
@options(
    click.argument("event", type=EVENT),
    *TRUSTED,
    click.option("--output", metavar="FILE", help="Keep the proof in this new file."),
    click.option(
        "--without-content",
        "isBare",
        is_flag=True,
        help="Leave the content out: the proof shows that the event is there, and not what it "
        "says. svcbroker proof reveal shows that later.",
    ),
    IDENTITY,
    jsonOption("Tell what is proved in JSON."),
)
def command(
    console: Console,
    client: Client,
    event: str,
    genesis: str | None,
    checkpoint: str | None,
    output: str | None,
    isBare: bool,
    asJson: bool,
) -> int:
    """Get it, check it, and tell what it proves."""
    from ..proofs import ProofInvalid, withoutContent
    from .inputs import readIdentityFile
    from .prooftext import eventFields, eventLines

    fetched = FetchedProof.fetch(client, event, genesis, checkpoint)
    try:
        if isBare:
            fetched = evolve(fetched, proof=withoutContent(fetched.proof))
        if output is not None:
            writeNew(output, fetched.proof)
        proved = fetched.verify()
        identities = namedFile("identity")
        if identities is not None:
            proved = proved.openedBy(readIdentityFile(identities))
    except ProofInvalid as error:
        return notProved(console, error, asJson)
    if asJson:
        told = {"proved": True, **eventFields(proved), "trusted": fetched.trusted}
        console.sayJson(told)
        return Exit.GOOD
    for line in eventLines(proved):
        console.say(line)
    for each in fetched.trusted:
        console.say(f"  {'trusted':12} {quoted(each)}")
    return Exit.GOOD


@clientCommand(
    """\
    Open one event for somebody else.

    Writes a document with the event's proof and, of a closed event, the key of its content alone:
    whoever has the document can check what the event says, and opens no other event by it. The
    identity stays yours. svcbroker verify checks it, offline.

    \b
    svcbroker proof reveal 7ba3f518-1-1 --identity bank.id --output reveal.json
    """
)
@options(
    click.argument("event", type=EVENT),
    *TRUSTED,
    click.option("--output", metavar="FILE", help="Write it to this new file."),
    IDENTITY,
)
def revealCommand(
    console: Console,
    client: Client,
    event: str,
    genesis: str | None,
    checkpoint: str | None,
    output: str | None,
) -> None:
    """Get the proof, check it, and write it with the key."""
    from ..proofs import NotOpened, ProofInvalid, makeReveal
    from .inputs import readIdentityFile

    identities = namedFile("identity")
    known = [] if identities is None else readIdentityFile(identities)
    fetched = FetchedProof.fetch(client, event, genesis, checkpoint)
    try:
        reveal = makeReveal(fetched.proof, fetched.verify(), known)
    except ProofInvalid as error:
        raise CommandError(f"NOT PROVED: {quoted(str(error))}", Exit.BAD) from None
    except NotOpened as error:
        raise CommandError(f"it is not opened: {error}", Exit.BAD) from None
    if output is None:
        console.say(reveal.decode("utf-8"))
    else:
        writeNew(output, reveal)
