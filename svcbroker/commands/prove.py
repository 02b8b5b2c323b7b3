"""
C{svcbroker prove}: get the proof of an event from a broker, and check it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from ..files import readFile, writeNew
from ..model import EventId
from .arguments import EVENT, jsonOption, options
from .clientcommand import IDENTITY, clientCommand, identityFile
from .terminal import CommandError, Console, Exit, quoted

if TYPE_CHECKING:
    from ..client import Client


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
    """
)
@options(
    click.argument("event", type=EVENT),
    click.option("--genesis", metavar="FILE", help="The genesis that is trusted."),
    click.option("--checkpoint", metavar="HEIGHT:HASH", help="A block that is trusted."),
    click.option("--output", metavar="FILE", help="Keep the proof in this new file."),
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
    asJson: bool,
) -> int:
    """Get it, check it, and tell what it proves."""
    from ..proofs import Checkpoint, ProofInvalid, readGenesis, verifyProof
    from .inputs import readIdentityFile
    from .prooftext import eventFields, eventLines

    try:
        known = None if checkpoint is None else Checkpoint.parse(checkpoint)
    except ValueError:
        raise CommandError(f"--checkpoint: {checkpoint!r} is not HEIGHT:HASH") from None
    chain, trusted = None, [] if known is None else [f"checkpoint {known}"]
    try:
        if genesis is not None:
            chain = readGenesis(readFile(genesis)).chain
            trusted.append(f"the genesis in {genesis}")
        elif known is None:
            chain = readGenesis(client.genesis()).chain
            trusted.append("the genesis that this broker tells")
    except ProofInvalid as error:
        raise CommandError(f"{genesis or 'the broker'}: {error}") from None
    # A checkpoint before the event covers no proof: verifying any proof of the event says so.
    isCovered = known is not None and known.height >= EventId.parse(event).height
    proof = client.proof(event, trusted=known.height if known is not None and isCovered else None)
    if output is not None:
        writeNew(output, proof)
    try:
        proved = verifyProof(proof, chain=chain, checkpoint=known)
        if proved.eventId != event:
            raise ProofInvalid("the proof is of another event")
        identities = identityFile()
        if identities is not None:
            proved = proved.openedBy(readIdentityFile(identities))
    except ProofInvalid as error:
        if asJson:
            console.say(json.dumps({"proved": False, "reason": str(error)}))
        else:
            console.say(f"NOT PROVED: {quoted(str(error))}")
        return Exit.BAD
    if asJson:
        console.say(json.dumps({"proved": True, **eventFields(proved), "trusted": trusted}))
        return Exit.GOOD
    for line in eventLines(proved):
        console.say(line)
    for each in trusted:
        console.say(f"  {'trusted':12} {quoted(each)}")
    return Exit.GOOD
