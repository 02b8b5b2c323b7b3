"""
C{svcbroker verify}: checks a proof offline, against a trusted genesis or checkpoint.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import evolve
from msgspec import to_builtins

from ..chain import Malformed
from ..files import openFile, readFile
from ..proofs import (
    MAX_PROOF_SIZE,
    AgeIdentity,
    Checkpoint,
    EventProof,
    ProofInvalid,
    ProvedEvent,
    ProvedTopic,
    extraOf,
    formatOf,
    readCheckpoint,
    readFields,
    readGenesis,
    verifyComplete,
    verifyConsistency,
    verifyProof,
    verifyReveal,
    verifyTopic,
    verifyWitnessed,
    verifyWitnessedTopic,
)
from ..proofs.tlog import Policy
from .arguments import CHAIN, PATH, UNEXPECTED, jsonOption, makeCommand, options
from .bundle import TSA_ROOTS, readRoots
from .inputs import readAuthors, readIdentityFile, readPolicy
from .prooftext import (
    Names,
    eventFields,
    eventLines,
    factLine,
    growthFields,
    growthLines,
    sideLines,
    topicFields,
    topicLines,
    witnessedEventLines,
    witnessedFields,
    witnessedTopicLines,
)
from .terminal import (
    CommandError,
    Console,
    Exit,
    notProved,
    progressBar,
    quoted,
    reported,
    timeText,
)

if TYPE_CHECKING:
    from ..proofs.bundle import Stamp

_ARCHIVE = b"PK\x03\x04"


def _trustedCheckpoint(value: str) -> Checkpoint:
    try:
        return Checkpoint.parse(value)
    except ValueError:
        pass
    path = Path(value)
    if not path.exists():
        raise CommandError(f"--checkpoint: {value!r} is neither HEIGHT:HASH nor a file")
    try:
        return readCheckpoint(readFile(path, MAX_PROOF_SIZE))
    except ProofInvalid as error:
        raise CommandError(f"{path}: {error}") from None


@makeCommand(
    """\
    Check a proof offline, against a trusted genesis, checkpoint or policy.

    PROOF is a file with the answer of the operation proof, topicProof or consistency; - reads
    standard input. Say what you trust: the genesis, the chain (its hash), or a checkpoint that you
    have kept. For a consistency proof give --checkpoint twice, or once with --genesis.

    PROOF may be a reveal, as svcbroker proof reveal writes it: it shows what a closed event says.

    With --complete PROOF is a topic proof, and files with the proofs of all its events follow, one
    proof in each file or on each line, requested with trusted=HEIGHT of the topic proof's block.

    An event of a log on an EVM chain is proved by a block whose hash the brokers of its contract
    have attested there: give --evm with a node, and --contract. Give --block with the hash of a
    block of that chain, after the attestation, and the node need not be believed.

    With --policy PROOF is a tlog-proof of an event or a topic, as svcbroker admin log prove writes
    it. No validator is trusted then, but the log's key and a quorum of witnesses, who tell when
    they have seen it. PROOF may also be a bundle, as svcbroker proof bundle writes it. With
    --complete as well it is a tlog-proof of the topic proof, whose block then is in a cosigned
    checkpoint.

    Exit codes: 0 proved, 1 not proved, 2 wrong usage.
    """
)
@options(
    click.argument("proof"),
    click.argument("events", metavar="[EVENT-PROOFS ...]", nargs=-1, type=PATH),
    click.option("--genesis", metavar="FILE", help="A file with the genesis that is trusted."),
    click.option(
        "--chain", type=CHAIN, metavar="HASH", help="The hash of the genesis that is trusted."
    ),
    click.option(
        "--checkpoint",
        "values",
        metavar="CHECKPOINT",
        multiple=True,
        help="A block that is trusted: HEIGHT:HASH, or a file that holds it. May come again.",
    ),
    click.option(
        "--evm",
        "node",
        metavar="URL",
        help="A node of an EVM chain, which is asked for the hash that the brokers have attested.",
    ),
    click.option("--contract", metavar="ADDRESS", help="The contract of the log on that chain."),
    click.option(
        "--block",
        type=CHAIN,
        metavar="HASH",
        help="A block of that chain that is trusted: the node has to prove all from its state.",
    ),
    click.option("--policy", type=PATH, metavar="FILE", help="The logs and witnesses trusted."),
    click.option(
        "--authors",
        type=PATH,
        metavar="FILE",
        help='A file with the names of authors: lines of NAME = "KEY". A KEY is 64 hexadecimal '
        "digits or the name of a PEM file.",
    ),
    click.option(
        "--identity",
        metavar="FILE",
        help="Show closed contents in plain that the identities in this file open.",
    ),
    TSA_ROOTS,
    click.option(
        "--complete",
        "isComplete",
        is_flag=True,
        help="Prove that the event proofs are those of all events of the topic.",
    ),
    jsonOption("Tell what is proved in JSON."),
)
def command(
    console: Console,
    proof: str,
    events: tuple[Path, ...],
    genesis: str | None,
    chain: bytes | None,
    values: tuple[str, ...],
    node: str | None,
    contract: str | None,
    block: bytes | None,
    policy: Path | None,
    authors: Path | None,
    identity: str | None,
    roots: Path | None,
    isComplete: bool,
    asJson: bool,
) -> int:
    """Check the proof, and tell what it proves."""
    if events and not isComplete:
        raise click.UsageError(UNEXPECTED, click.get_current_context())
    if isBundle(proof):
        if events or genesis or chain or values or isComplete:
            raise CommandError("a bundle is verified with --policy alone")
        return _checkBundle(console, Path(proof), policy, authors, identity, roots, asJson)
    if roots is not None:
        raise CommandError("--tsa-roots is for bundles, which this is not")
    others = [each for each in (*values, node) if each is not None]
    _checkTrusted(genesis, chain, others, policy, isComplete)
    if (node is None) != (contract is None):
        raise CommandError("--evm and --contract are given together")
    if block is not None and node is None:
        raise CommandError("--block is a block of the chain of --evm, which is not given")
    checkpoints = [_trustedCheckpoint(value) for value in values]
    beginning, trusted = None, []
    if genesis is not None:
        path = Path(genesis)
        try:
            beginning = readGenesis(readFile(path, MAX_PROOF_SIZE))
        except ProofInvalid as error:
            raise CommandError(f"{path}: {error}") from None
        chain = beginning.chain
        trusted.append(f"the genesis in {path}")
    elif chain is not None:
        trusted.append(f"chain {chain.hex()}")
    trusted += [f"checkpoint {checkpoint}" for checkpoint in checkpoints]
    names = None if authors is None else readAuthors(authors)
    identities = None if identity is None else readIdentityFile(identity)
    witnesses = None
    if policy is not None:
        witnesses = readPolicy(policy)
        trusted.append(f"the policy in {policy}")
    most = MAX_PROOF_SIZE
    data = sys.stdin.buffer.read(most + 1) if proof == "-" else readFile(proof, most)
    if node is not None and contract is not None:
        checkpoint, because = _attested(data, node, contract, block)
        checkpoints.append(checkpoint)
        trusted.append(f"checkpoint {checkpoint}, attested in contract {contract}, {because}")
    try:
        if witnesses is not None:
            those = events if isComplete else None
            found, lines = _witnessed(console, data, witnesses, those, names, identities)
        elif (kind := formatOf(data)).startswith("svcbroker/consistency-proof"):
            if beginning is not None:
                checkpoints.append(Checkpoint.of(beginning.header()))
            found, lines = _growth(data, chain, checkpoints)
        elif isComplete or kind.startswith("svcbroker/topic-proof"):
            those = events if isComplete else None
            found, lines = _topic(console, data, chain, checkpoints, those, names, identities)
        else:
            found, lines = _event(data, kind, chain, checkpoints, names, identities)
    except ProofInvalid as error:
        return notProved(console, error, asJson)
    # One operator has all keys of such a ledger.
    isOpen = not found.get("witnesses", values or node) and found.get("ledger") in ("pbft", None)
    _tell(console, found, lines, trusted, isOpen, asJson)
    return Exit.GOOD


def _checkTrusted(
    genesis: str | None,
    chain: bytes | None,
    values: Sequence[str],
    policy: Path | None,
    isComplete: bool,
) -> None:
    """Check the combination of options that say what is trusted."""
    isOther = genesis is not None or chain is not None or bool(values)
    if policy is not None and isOther:
        raise CommandError("--policy says all that is trusted: give it alone")
    if policy is None and not (isOther or isComplete):
        raise CommandError(
            "give what you trust: --genesis, --chain, --checkpoint, --evm or --policy"
        )
    if genesis is not None and chain is not None:
        raise CommandError("--genesis says which chain it is: leave out --chain")
    if len(values) > 2:
        raise CommandError("there are at most two checkpoints")


def _tell(
    console: Console,
    found: Mapping[str, Any],
    lines: Iterator[str],
    trusted: Sequence[str],
    isOpen: bool,
    asJson: bool,
) -> None:
    """
    Print the facts that are proved.

    @param isOpen: whether the proof leaves room for another history.
    """
    if asJson:
        left = ["that there is no other history"] if isOpen else []
        told = {"proved": True, **found, "trusted": trusted, "notProved": left}
        console.sayJson(told)
        return
    for line in lines:
        console.say(line)
    for number, each in enumerate(trusted):
        console.say(factLine("" if number else "trusted", quoted(each)))
    if isOpen:
        console.say(
            factLine("not proved", "nothing here shows that there is no other history: trust")
        )
        console.say(factLine("", "a checkpoint that was kept where the operator cannot change it"))


def _attested(data: bytes, node: str, contract: str, block: bytes | None) -> tuple[Checkpoint, str]:
    """
    The block that a proof leads to, with the hash that the brokers have attested for it, and why
    that is believed.
    """
    from ..ledgers.evm import checkInstalled, operating
    from .clientcommand import runReactor

    missing = checkInstalled()
    if missing:
        raise CommandError(missing)
    try:
        address, url = operating.readAddress(contract), operating.readUrl(node)
        proof = readFields(EventProof, data, "an event proof")
    except (ValueError, ProofInvalid) as error:
        raise CommandError(str(error)) from None
    height = (proof.checkpoint or proof.block).header.height

    async def ask(reactor: Any) -> operating.Attested:
        rpc = operating.connectChain(reactor, [url], operating.DIALECTS["auto"], None, address)
        try:
            return await operating.attestedHash(rpc, address, height, block)
        finally:
            await rpc.close()

    try:
        found = runReactor(ask)
    except operating.EvmError as error:
        raise CommandError(str(error), Exit.BAD) from None
    if found.hash is None:
        raise CommandError(
            f"the brokers of contract {contract} have not attested block {height}, to which this "
            "proof leads: get it again after the next attestation",
            Exit.BAD,
        )
    if not found.isProved:
        because = f"by the word of {node} alone, which serves no eth_getProof"
    else:
        because = f"proved by the state of the chain's block {found.number}, 0x{found.block.hex()}"
        if block is None:
            because += f", as {node} has it: compare that hash elsewhere, or give it as --block"
    return Checkpoint(height, found.hash), because


def isBundle(proof: str) -> bool:
    """Whether a file is a bundle: a ZIP archive."""
    if proof == "-":
        return False
    with openFile(proof) as file:
        return file.read(len(_ARCHIVE)) == _ARCHIVE


def _checkBundle(
    console: Console,
    path: Path,
    policyPath: Path | None,
    authors: Path | None,
    identity: str | None,
    roots: Path | None,
    asJson: bool,
) -> int:
    """Check all proofs of a bundle, and tell what they prove."""
    from ..proofs.bundle import MAX_SIZE, Bundle, StampRefused

    data = readFile(path, MAX_SIZE)
    names = None if authors is None else readAuthors(authors)
    identities = None if identity is None else readIdentityFile(identity)
    try:
        bundle = Bundle.decode(data)
        policy = Policy.parse(bundle.policy) if policyPath is None else readPolicy(policyPath)
        found = [
            evolve(each, event=_opened(each.event, identities)) for each in bundle.verify(policy)
        ]
        stamps: dict[str, Stamp | None] = {}
        if roots is not None:
            certificates = readRoots(roots)
            stamps = {name: bundle.stamp(name, certificates) for name in bundle.proofs}
    except (Malformed, ProofInvalid, StampRefused) as error:
        return notProved(console, error, asJson)
    trusted = "the bundle's own policy" if policyPath is None else f"the policy in {policyPath}"
    if policyPath is None:
        console.warn("the policy is the bundle's own: compare its keys, or give --policy")
    if asJson:
        told = [
            {
                **eventFields(each.event, names),
                **witnessedFields(each.witnessed),
                "erasure": to_builtins(bundle.erasures.get(str(each.event.eventId))),
                "timeStamp": _stampFields(stamps.get(str(each.event.eventId))),
            }
            for each in found
        ]
        sides = [*sideLines([each.event for each in found], names)]
        more = {"receipts": sides} if sides else {}
        console.sayJson({"proved": True, "events": told, "trusted": [trusted], **more})
        return Exit.GOOD
    for line in sideLines([each.event for each in found], names):
        console.say(line)
    for each in found:
        for line in witnessedEventLines(each, names, bundle.erasures.get(each.event.eventId)):
            console.say(line)
        stamp = stamps.get(str(each.event.eventId))
        if stamp is not None:
            seen = timeText(int(stamp.time.timestamp() * 1000))
            console.say(factLine("stamped by", f"{quoted(stamp.authority)} at {seen}"))
    if bundle.timestamps and roots is None:
        console.say(factLine("not checked", "time stamps: give --tsa-roots"))
    console.say(factLine("trusted", quoted(trusted)))
    return Exit.GOOD


def _stampFields(stamp: Stamp | None) -> Mapping[str, Any] | None:
    if stamp is None:
        return None
    return {"time": int(stamp.time.timestamp() * 1000), "authority": stamp.authority}


def _witnessed(
    console: Console,
    data: bytes,
    policy: Policy,
    events: Sequence[Path] | None,
    names: Names | None,
    identities: Sequence[AgeIdentity] | None,
) -> tuple[Mapping[str, Any], Iterator[str]]:
    if data.lstrip()[:1] == b"{":
        raise ProofInvalid(
            "with a policy it takes the proof that the block is in a cosigned checkpoint: get it "
            "with svcbroker admin log prove"
        )
    if not formatOf(extraOf(data)).startswith("svcbroker/topic-proof") and events is None:
        proved = verifyWitnessed(data, policy)
        proved = evolve(proved, event=_opened(proved.event, identities))
        found = {**eventFields(proved.event, names), **witnessedFields(proved.witnessed)}
        return found, witnessedEventLines(proved, names)
    seen = verifyWitnessedTopic(data, policy)
    whole = None if events is None else _complete(console, seen.topic, events, identities)
    found = {**topicFields(seen.topic, whole), **witnessedFields(seen.witnessed)}
    return found, witnessedTopicLines(seen, whole, names)


def _opened(proved: ProvedEvent, identities: Sequence[AgeIdentity] | None) -> ProvedEvent:
    """An event opened by identities, unless it was revealed."""
    isTried = identities is not None and proved.opened is None
    return proved.openedBy(identities or ()) if isTried else proved


def _event(
    data: bytes,
    kind: str,
    chain: bytes | None,
    checkpoints: Sequence[Checkpoint],
    names: Names | None,
    identities: Sequence[AgeIdentity] | None,
) -> tuple[Mapping[str, Any], Iterator[str]]:
    check = verifyReveal if kind.startswith("svcbroker/reveal") else verifyProof
    proved = check(data, chain=chain, checkpoint=_only(checkpoints))
    proved = _opened(proved, identities)
    return eventFields(proved, names), eventLines(proved, names)


def _only(checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    if len(checkpoints) > 1:
        raise CommandError("two checkpoints are for a consistency proof, which this is not")
    return checkpoints[0] if checkpoints else None


def _topic(
    console: Console,
    data: bytes,
    chain: bytes | None,
    checkpoints: Sequence[Checkpoint],
    events: Sequence[Path] | None,
    names: Names | None,
    identities: Sequence[AgeIdentity] | None,
) -> tuple[Mapping[str, Any], Iterator[str]]:
    proved = verifyTopic(data, chain=chain, checkpoint=_only(checkpoints))
    if events is None:
        return topicFields(proved), topicLines(proved, names=names)
    found = _complete(console, proved, events, identities)
    return topicFields(proved, found), topicLines(proved, found, names)


def _complete(
    console: Console,
    topic: ProvedTopic,
    events: Sequence[Path],
    identities: Sequence[AgeIdentity] | None,
) -> Sequence[ProvedEvent]:
    """All events of a topic, proved by files."""
    with progressBar(console, "verifying", "proofs") as report:
        proofs = (proof for path in events for proof in _proofsIn(path))
        proved = verifyComplete(topic, reported(proofs, report, topic.count))
    return [_opened(each, identities) for each in proved]


def _proofsIn(path: Path) -> Iterator[bytes]:
    """The proofs in a file: one on each line, or one on many lines."""
    with openFile(path) as file:
        line = file.readline(MAX_PROOF_SIZE + 1)
        if not line.rstrip().endswith(b"}"):
            yield line + file.read(MAX_PROOF_SIZE + 1)
            return
        while line:
            if line.strip():
                yield line
            line = file.readline(MAX_PROOF_SIZE + 1)


def _growth(
    data: bytes, chain: bytes | None, checkpoints: list[Checkpoint]
) -> tuple[Mapping[str, Any], Iterator[str]]:
    if len(checkpoints) != 2:
        raise CommandError(
            "a consistency proof is about two blocks: give --checkpoint twice, or --genesis and "
            "one --checkpoint"
        )
    older, newer = sorted(checkpoints, key=lambda checkpoint: checkpoint.height)
    proved = verifyConsistency(data, older=older, newer=newer, chain=chain)
    return growthFields(proved), growthLines(proved)
