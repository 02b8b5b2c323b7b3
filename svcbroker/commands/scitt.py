"""
C{svcbroker proof scitt}: registers statements at a transparency service, and gets its receipts and
keys. What it gets is verified.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..files import writeNew
from ..proofs import ProofInvalid
from . import scittclient
from .arguments import PATH, ParsedType, jsonOption, options
from .clientcommand import connected, connectedCommand
from .commandline import Command
from .prooftext import factLine
from .scittclient import ScittClient
from .scittverify import (
    CHECKPOINT,
    CONTENT,
    POLICY,
    ProvedStatement,
    checkContent,
    importScitt,
    readCheckpointFile,
    readKeyFile,
    readMessage,
    readStatement,
)
from .terminal import CommandError, Console, Exit, counted, notProved, quoted, showRecord

if TYPE_CHECKING:
    from ..client import Client
    from ..proofs.scitt import CoseKey, SignedStatement, TreeAudit, TreeLine
    from ..proofs.tlog import Policy

_OUTPUT: Final = click.option(
    "--output", type=PATH, metavar="FILE", required=True, help="The new file to write."
)
_TRUSTED: Final = (
    click.option(
        "--keys",
        type=PATH,
        metavar="FILE",
        help="The keys of the service that are trusted. [default: those that it shows]",
    ),
    click.option(
        "--service", "name", metavar="NAME", help="The name that the service must have in receipts."
    ),
)
_TOPIC: Final = click.option(
    "--topic", metavar="TOPIC", help="The topic of the service. [default: the service at the root]"
)
_AS_JSON: Final = jsonOption("Tell what is proved in JSON.")


def _serviceCommand(summary: str) -> Callable[[Callable[..., int]], click.Command]:
    """
    Make a command of a function that is called with the console, a L{ScittClient} and the
    parameters of the command, and returns the exit code.
    """

    def connect(given: Mapping[str, Any]) -> AbstractContextManager[ScittClient]:
        importScitt()
        return scittclient.askedService(given, click.get_current_context().params["topic"])

    def decorate(function: Callable[..., int]) -> click.Command:
        @wraps(function)
        def call(console: Console, service: ScittClient, **given: Any) -> int:
            del given["topic"]
            return function(console, service, **given)

        return connectedCommand(summary, connect)(call)

    return decorate


def _receiptCommand(
    summary: str,
    parameters: Sequence[Any],
    ask: Callable[[ScittClient, bytes, int | None], bytes],
) -> click.Command:
    """
    Make a command that gets a receipt of a statement, and writes the Transparent Statement.

    @param parameters: those that others do not have, such as C{statement}.
    @param ask: gets the receipt of an entry, in the tree of a size or as it is now.
    """

    def run(
        console: Console,
        service: ScittClient,
        statement: Path | str,
        output: Path,
        keys: Path | None,
        name: str | None,
        asJson: bool,
        checkpoint: Path | None = None,
        content: Path | None = None,
    ) -> int:
        scitt = importScitt()
        for option, path in (("--output", output), ("--checkpoint", checkpoint)):
            if path is not None and path.exists():
                # Said before the statement is in the tree for good.
                raise CommandError(f"{option}: {path} is there already")
        if isinstance(statement, Path):
            said = readStatement(statement)
        else:
            said = _registeredStatement(service, statement)
        try:
            checkContent(said, content)
        except ProofInvalid as error:
            return notProved(console, error, asJson)
        trusted = _trustedKeys(console, service, keys)
        signed = None if checkpoint is None else _signedTree(service)
        size = None if signed is None else signed[1].size
        receipt = ask(service, said.message.withoutUnprotected(), size)
        try:
            found = scitt.verifyReceipts(said, [receipt], trusted, name)
            if signed is not None and (size, signed[1].root) != (
                found[0].receipt.size,
                found[0].root,
            ):
                raise ProofInvalid("the checkpoint has another tree of this size than the receipt")
        except ProofInvalid as error:
            return notProved(console, error, asJson)
        writeNew(output, said.withReceipts([*scitt.receiptsOf(said), receipt]))
        if signed is not None and checkpoint is not None:
            writeNew(checkpoint, signed[0])
        return ProvedStatement(said, found, 1, False, content).show(console, asJson)

    given = (*parameters, _OUTPUT, *_TRUSTED, _TOPIC, _AS_JSON)
    return _serviceCommand(summary)(options(*given)(run))


def _fileOrEvent(text: str) -> Path | str:
    """The path of a statement, or the id of an event, which no path to it looks like."""
    from ..errors import BrokerError
    from ..model import EventId

    try:
        return str(EventId.parse(text))
    except BrokerError:
        return Path(text)


def _signedTree(service: ScittClient) -> tuple[bytes, TreeLine]:
    """
    The newest checkpoint of the broker's log, and the tree of the service in it; nothing is
    verified.

    @raise CommandError: the log has not signed it yet.
    """
    with connected(service.urls, service.settings) as client:
        data = client.readLog("checkpoint")
    topic = click.get_current_context().params["topic"]
    try:
        found = [each for each in importScitt().treesOf(data) if topic in (None, each.topic)]
    except ProofInvalid as error:
        raise CommandError(f"what the broker shows: {error}", Exit.BAD) from None
    if len(found) > 1:
        raise CommandError("the checkpoint has the trees of several topics: give --topic")
    if not found:
        text = (
            "the newest checkpoint has no tree of statements: wait for one that is cosigned later"
        )
        raise CommandError(text, Exit.BAD)
    return data, found[0]


def _registeredStatement(service: ScittClient, event: str) -> SignedStatement:
    """
    The statement that an event of the topic is: the receipt tells whether it is registered.

    @raise CommandError: it is none.
    """
    with connected(service.urls, service.settings) as client:
        content = client.getEvent(event).content
    try:
        said: SignedStatement = importScitt().SignedStatement.decode(content)
    except ProofInvalid as error:
        raise CommandError(f"event {event}: {error}", Exit.BAD) from None
    return said


_register: Final = _receiptCommand(
    """\
    Register a signed statement, and write the Transparent Statement.

    STATEMENT is a COSE_Sign1 with its payload. The receipt of the service is verified and put into
    it. To register a statement again is safe: it is in the tree once, and has a new receipt.

    With --content it is registered only where that file is its content: its payload, or, of a Hash
    Envelope, what its payload is the hash of.

    Give --keys that you have kept. Otherwise the receipt is verified by the keys that the service
    shows now, and shows only that it does not contradict itself.

    Exit codes: 0 registered and proved, 1 refused or not proved, 2 wrong usage.

    \b
    svcbroker proof scitt register report.cose --output report.scitt --keys scitt-keys
    svcbroker proof scitt register report.cose --output report.scitt --url https://scitt.example
    """,
    [click.argument("statement", type=PATH), CONTENT],
    lambda service, entry, size: service.register(entry),
)

_receipt: Final = _receiptCommand(
    """\
    Get a new receipt of a registered statement, and write the Transparent Statement.

    STATEMENT is its file, or the id of the event that it is: any event of the service's topic has a
    receipt. A file of such a name is given as ./NAME.

    The receipt proves that the statement is in the tree as the tree is now, and is verified as with
    svcbroker proof scitt register. It is put behind the receipts that the statement has.

    With --checkpoint it is of the tree that the newest checkpoint of the broker's log has, which
    witnesses have cosigned: svcbroker proof scitt verify --checkpoint checks both, offline.

    Exit codes: 0 proved, 1 refused or not proved, 2 wrong usage.

    \b
    svcbroker proof scitt receipt report.scitt --output newer.scitt --keys scitt-keys
    svcbroker proof scitt receipt 7ba3f518-3-2 --output report.scitt --keys scitt-keys
    """,
    [
        click.argument(
            "statement", metavar="STATEMENT|EVENT", type=ParsedType("statement", _fileOrEvent)
        ),
        click.option(
            "--checkpoint",
            type=PATH,
            metavar="FILE",
            help="Keep the checkpoint of the broker's log in this new file, with a receipt of its "
            "tree.",
        ),
    ],
    lambda service, entry, size: service.receipt(sha256(entry).digest(), size),
)


def _trustedKeys(console: Console, service: ScittClient, path: Path | None) -> Sequence[CoseKey]:
    """The keys in a file, or those that the service shows."""
    if path is not None:
        return readKeyFile(path)
    console.warn("the keys are what the service shows: give --keys with those that you trust")
    return _shownKeys(service.keys())


def _shownKeys(data: bytes) -> Sequence[CoseKey]:
    try:
        found: Sequence[CoseKey] = importScitt().readKeys(data)
    except ProofInvalid as error:
        raise CommandError(f"what the service shows: {error}", Exit.BAD) from None
    return found


@_serviceCommand(
    """\
    Show the keys of a service, and check that the chain of the broker certifies them.

    Say what you trust: the genesis that you have kept. Without it, the keys are what the service
    shows. What is written to --output is the COSE_KeySet that other commands take as --keys.

    \b
    svcbroker proof scitt keys --genesis genesis.json --output scitt-keys
    """
)
@options(
    click.option("--genesis", metavar="FILE", help="The genesis that is trusted."),
    click.option("--output", type=PATH, metavar="FILE", help="Keep the keys in this new file."),
    _TOPIC,
    jsonOption("Show each key as a line of JSON."),
)
def _keys(
    console: Console,
    service: ScittClient,
    genesis: str | None,
    output: Path | None,
    asJson: bool,
) -> int:
    data = service.keys()
    keys = _shownKeys(data)
    events: Mapping[bytes, str] = {}
    if genesis is None:
        console.warn("the keys are what the service shows: give --genesis to have them proved")
    else:
        with connected(service.urls, {**service.settings, "genesis": genesis}) as client:
            events = _certified(client, keys)
    if output is not None:
        writeNew(output, data)
    for key in keys:
        fields = {"kid": key.kid.hex(), "thumbprint": key.thumbprint.hex()}
        told = {**fields, "certifiedBy": events.get(key.kid)}
        event = "" if genesis is None else f", certified by event {events[key.kid]}"
        showRecord(console, told, [f"{key.kid.hex()}{event}"], asJson)
    return Exit.GOOD


def _certified(client: Client, keys: Sequence[CoseKey]) -> Mapping[bytes, str]:
    """
    The events by which a chain certifies keys, by the names of the keys.

    @param client: one that verifies the events.
    @raise CommandError: the chain does not certify one of them.
    """
    from ..proofs.scitt import KEY_TOPIC, Registration

    found: dict[bytes, str] = {}
    for event in client.events(KEY_TOPIC):
        certified = Registration()
        certified.addKey(event.content or b"")
        found |= {each.kid: event.eventId for each in certified.keys.values() if each in keys}
    for each in keys:
        if each.kid not in found:
            text = f"NOT PROVED: the chain does not certify the key {each.kid.hex()}"
            raise CommandError(text, Exit.BAD)
    return found


@_serviceCommand(
    """\
    Prove that the tree of a service has everything that an earlier receipt is of.

    STATEMENT is a Transparent Statement. Its receipt is verified, and the consistency receipt that
    the service gives from the tree of that receipt to the tree as it is now: nothing was changed or
    left out in between. It is kept in --output, for svcbroker proof scitt verify --consistency.

    Exit codes: 0 proved, 1 refused or not proved, 2 wrong usage.

    \b
    svcbroker proof scitt consistency report.scitt --keys scitt-keys --output grown
    """
)
@options(
    click.argument("statement", type=PATH),
    click.option("--output", type=PATH, metavar="FILE", help="Keep the receipt in this new file."),
    *_TRUSTED,
    _TOPIC,
    _AS_JSON,
)
def _consistency(
    console: Console,
    service: ScittClient,
    statement: Path,
    output: Path | None,
    keys: Path | None,
    name: str | None,
    asJson: bool,
) -> int:
    scitt = importScitt()
    trusted = _trustedKeys(console, service, keys)
    try:
        said = scitt.SignedStatement.decode(readMessage(statement))
        given = scitt.receiptsOf(said)
        found = scitt.verifyReceipts(said, given, trusted, name)
        # The newest of its receipts.
        older = max(each.receipt.size for each in found)
        receipt = service.consistency(older)
        grown = None
        if receipt is not None:
            grown = scitt.verifyGrowth(found, receipt, trusted, name)
    except ProofInvalid as error:
        return notProved(console, error, asJson)
    if receipt is None:
        console.warn(f"the tree has not grown: it has the {older} entries of the receipt")
    elif output is not None:
        writeNew(output, receipt)
    return ProvedStatement(said, found, len(given), False, grown=grown).show(console, asJson)


@_serviceCommand(
    """\
    Compute the tree of a service from the log, and compare receipts with it.

    All events of the topic are read, and each statement is checked again by the policy of its place
    in the log. The tree that they make must be that of the service as it is now, and those of the
    receipts of each STATEMENT, a Transparent Statement. The keys are those that the log certifies.
    With --checkpoint and --policy, so must be the tree that a log has signed in its checkpoint.

    With --genesis, every event is proved to be of the chain that you trust. With --copy, the broker
    that is asked has a copy of the chain and no service: only the receipts given are compared.

    Exit codes: 0 good, 1 not good, 2 wrong usage.

    \b
    svcbroker proof scitt audit report.scitt --topic statements --genesis genesis.json
    """
)
@options(
    click.argument("statements", metavar="[STATEMENT...]", type=PATH, nargs=-1),
    click.option(
        "--topic", metavar="TOPIC", required=True, help="The topic of the service's statements."
    ),
    CHECKPOINT,
    POLICY,
    click.option("--genesis", metavar="FILE", help="The genesis that is trusted."),
    click.option("--copy", "isCopy", is_flag=True, help="Ask the broker for events alone."),
    jsonOption("Tell what was found in JSON."),
)
def _audit(
    console: Console,
    service: ScittClient,
    statements: tuple[Path, ...],
    checkpoint: Path | None,
    policy: Path | None,
    genesis: str | None,
    isCopy: bool,
    asJson: bool,
) -> int:
    topic = click.get_current_context().params["topic"]
    said = {str(each): readStatement(each) for each in statements}
    seen = readCheckpointFile(checkpoint, policy)
    if isCopy and not said and seen is None:
        raise CommandError("--copy needs a STATEMENT: there is nothing else to compare")
    try:
        if not isCopy:
            said["the service"] = importScitt().SignedStatement.decode(service.policy())
        with connected(service.urls, {**service.settings, "genesis": genesis}) as client:
            audit, problems = _replay(client, topic, said, _signedTrees(topic, checkpoint, seen))
    except ProofInvalid as error:
        return notProved(console, error, asJson)
    if genesis is None:
        console.warn("the events are what the broker tells: give --genesis to have them proved")
    compared = [*said, *([] if checkpoint is None else [str(checkpoint)])]
    told = {
        "good": not problems,
        "entries": audit.size,
        "root": audit.root.hex(),
        "compared": compared,
        "leftOut": audit.leftOut,
        "problems": problems,
    }
    lines = [
        *(f"NOT GOOD: {quoted(each)}" for each in problems),
        *([] if problems else ["GOOD: the log makes the trees that were signed"]),
        factLine("entries", str(audit.size)),
        factLine("root", audit.root.hex()),
        factLine("compared", quoted(", ".join(compared))),
        factLine("left out", f"{counted(audit.leftOut, 'event')}: no statements by the policy"),
    ]
    showRecord(console, told, lines, asJson)
    return Exit.BAD if problems else Exit.GOOD


def _signedTrees(
    topic: str, checkpoint: Path | None, seen: tuple[bytes, Policy] | None
) -> Mapping[str, TreeLine]:
    """
    The tree of a topic in a checkpoint, by what the checkpoint is called; none without one.

    @raise ProofInvalid: the policy does not accept it, or it has no tree of the topic.
    """
    if seen is None:
        return {}
    _, lines = importScitt().readTrees(*seen)
    found = {str(checkpoint): each for each in lines if each.topic == topic}
    if not found:
        raise ProofInvalid(f"the checkpoint has no tree of the topic {topic}")
    return found


def _replay(
    client: Client,
    topic: str,
    said: Mapping[str, SignedStatement],
    signed: Mapping[str, TreeLine],
) -> tuple[TreeAudit, Sequence[str]]:
    """
    Compute a tree from the log.

    @param said: the Transparent Statements whose receipts are compared, by what they are.
    @param signed: the trees that are compared, by what has signed them.
    @return: the tree, and the problems.
    @raise ProofInvalid: a receipt is wrong by itself.
    @raise CommandError: the log has not all that the tree is made of.
    """
    scitt = importScitt()
    audit: TreeAudit = scitt.TreeAudit()
    keys = [*client.events(scitt.KEY_TOPIC)]
    certified = scitt.Registration()
    for event in keys:
        certified.addKey(event.content)
    for what, statement in said.items():
        receipts = scitt.receiptsOf(statement)
        for found in scitt.verifyReceipts(statement, receipts, [*certified.keys.values()]):
            audit.expect(f"the receipt of {what}", found.receipt.size, found.root)
    for what, line in signed.items():
        audit.expect(f"the checkpoint {what}", line.size, line.root)
    problems: list[str] = []
    for number, event in enumerate(client.events(topic, tombstones=True), 1):
        if event.sequence != number or event.erased:
            gap = "was erased" if event.erased else "is missing"
            raise CommandError(
                f"event {number} of the topic {gap}: the tree cannot be computed", Exit.BAD
            )
        while keys and keys[0].height <= event.height:
            audit.registration.addKey(keys.pop(0).content)
        problems += audit.add(event.content, event.timestamp or 0)
    return audit, [*problems, *audit.missing()]


HELP: Final = """\
Verify a statement offline, or register it at a service and get its receipts. A service is at --url:
a broker, or any other with the SCITT Reference API and a tree of RFC 9162.
"""

COMMANDS: Final = (
    Command(
        "verify",
        "Check a statement of SCITT and its receipts offline.",
        place="scittverify",
        example="svcbroker proof scitt verify statement.scitt --keys scitt-keys",
    ),
    Command.of("register", _register),
    Command.of("receipt", _receipt),
    Command.of("keys", _keys),
    Command.of("consistency", _consistency),
    Command.of("audit", _audit),
)
"""The commands of C{svcbroker proof scitt}."""
