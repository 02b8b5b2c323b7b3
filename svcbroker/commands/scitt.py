"""
C{svcbroker proof scitt}: registers statements at a transparency service, by the SCITT Reference
API, and gets its receipts and keys. What it gets is verified.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from hashlib import sha256
from math import inf
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urljoin, urlsplit

import click
import httpx

from ..client._effects import HttpResponse
from ..client._httpx import answerOf, makeContext
from ..client._requests import authorization, checkUrl, readError
from ..files import writeNew
from ..proofs import ProofInvalid
from .arguments import PATH, ParsedType, jsonOption, options
from .clientcommand import brokerOf, connected, connectedCommand
from .commandline import Command
from .prooftext import factLine
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


_COSE: Final = {"Content-Type": "application/cose", "Accept": "application/cose"}
_PROBLEM: Final = "application/concise-problem-details+cbor"
_UNDER_WAY: Final = (202, 204, 302, 303)
"""The answers about a statement that is being registered; drafts up to -10 redirect."""


class ScittClient:
    """
    A transparency service.

    Its methods raise L{CommandError}: it cannot be reached, refuses, or does not answer in time.

    @ivar urls: the broker that it is at.
    @ivar settings: the options of a client of that broker.
    """

    def __init__(
        self,
        base: str,
        http: httpx.Client,
        timeout: float,
        now: Callable[[], float] = monotonic,
        wait: Callable[[float], None] = sleep,
        urls: Sequence[str] = (),
        settings: Mapping[str, Any] = {},
    ) -> None:
        """
        @param base: the URL above its resources.
        @param timeout: how many seconds everything may take together; 0 for as long as it takes.
        @param now: the time in seconds, of a clock that never goes back.
        @param wait: waits for so many seconds.
        """
        self.urls = urls
        self.settings = settings
        self._base = base
        self._http = http
        self._now = now
        self._wait = wait
        self._timeout = timeout
        self._end = now() + (timeout or inf)

    def keys(self) -> bytes:
        """Its keys: a COSE_KeySet."""
        return self._result(self._ask("GET", "/.well-known/scitt-keys"))

    def register(self, statement: bytes) -> bytes:
        """
        Register a statement.

        @return: a receipt.
        """
        return self._result(self._settled(self._ask("POST", "/entries", statement)))

    def receipt(self, id: bytes, size: int | None = None) -> bytes:
        """
        A new receipt of an entry.

        @param id: the hash of the entry.
        @param size: the size of the tree that it is to be of, which only a broker knows; C{None}
            for the tree as it is now.
        """
        query = "" if size is None else f"?size={size}"
        return self._result(self._settled(self._ask("GET", f"/entries/{id.hex()}{query}")))

    def policy(self) -> bytes:
        """The Transparent Statement with the policy, whose receipt is of the tree as it is now."""
        return self._result(self._ask("GET", "/policy"))

    def consistency(self, size: int) -> bytes | None:
        """
        A receipt that the tree has everything that it had at a size.

        @return: C{None} where it has not grown.
        """
        answer = self._ask("GET", f"/consistency/{size}")
        return None if answer.status == 204 else self._result(answer)

    def _settled(self, answer: HttpResponse) -> HttpResponse:
        """The answer about a statement once it is no more under way."""
        place = self._base
        while answer.status in _UNDER_WAY:
            place = urljoin(place, answer.headers.get("location", ""))
            if urlsplit(place)[:2] != urlsplit(self._base)[:2] or place == self._base:
                raise CommandError(f"the service names no place of its own: {quoted(place)}")
            if not self._pause(answer):
                raise CommandError(
                    f"the statement was not registered within {self._timeout:g} seconds; ask "
                    "later: svcbroker proof scitt receipt",
                    Exit.BAD,
                )
            answer = self._ask("GET", place)
        return answer

    def _ask(self, method: str, path: str, body: bytes = b"") -> HttpResponse:
        """The answer to a request, which is made again while the service says so."""
        while True:
            answer = self._send(method, path if "://" in path else self._base + path, body)
            if answer.status not in (429, 503) or not self._pause(answer):
                return answer

    def _pause(self, answer: HttpResponse) -> bool:
        """Wait as an answer says. @return: whether there is time for it."""
        seconds = 1.0 if answer.retryAfter is None else answer.retryAfter
        if self._now() + seconds > self._end:
            return False
        self._wait(seconds)
        return True

    def _send(self, method: str, url: str, body: bytes) -> HttpResponse:
        from ..proofs.scitt import MAX_MESSAGE

        headers: Mapping[str, str] = _COSE if body else {}
        try:
            with self._http.stream(method, url, headers=headers, content=body or None) as response:
                content = bytearray()
                for piece in response.iter_bytes():
                    content += piece
                    if len(content) > MAX_MESSAGE:
                        raise CommandError(f"{url}: the answer has more than {MAX_MESSAGE} bytes")
                return answerOf(response, bytes(content))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise CommandError(f"{url}: {error or type(error).__name__}") from None

    def _result(self, answer: HttpResponse) -> bytes:
        """The body of an answer that is good."""
        if answer.status in (200, 201):
            return answer.body
        text = _problemOf(answer)
        if text is None:
            raise CommandError(
                f"there is no transparency service at {self._base} (HTTP status {answer.status})"
            )
        raise CommandError(f"the service refused ({answer.status}): {text}", Exit.BAD)


def _problemOf(answer: HttpResponse) -> str | None:
    """The text of an error; C{None} where it is none that a service answers."""
    from ..proofs.scitt import decodeCbor

    if answer.headers.get("content-type") == _PROBLEM:
        try:
            fields = decodeCbor(answer.body, "the error")
        except ProofInvalid:
            fields = None
        if isinstance(fields, dict):
            words = [fields[each] for each in (-1, -2) if isinstance(fields.get(each), str)]
            return quoted(": ".join(words)[:1000])
    error = readError(answer.body)
    # What the broker says itself: of credentials, or of the size of a request.
    return None if error is None or answer.status == 404 else quoted(error.message)


@contextmanager
def askedService(given: Mapping[str, Any], topic: str | None) -> Iterator[ScittClient]:
    """
    The service that the options of the command line name.

    @param given: those that say which broker is asked.
    @param topic: the topic of the service; C{None} for the one at the root.
    @raise CommandError: they are wrong.
    """
    urls, settings = brokerOf(given, os.environ)
    if len(urls) > 1:
        raise CommandError("give one --url: the service is at one broker")
    try:
        base = checkUrl(urls[0])
        names = ("user", "password", "token")
        headers = authorization(*(settings.get(each) for each in names))
        options: Any = settings
        context = makeContext(options, [base])
    except ValueError as error:
        raise CommandError(str(error)) from None
    timeout = given["timeout"]
    with httpx.Client(headers=headers, verify=context, timeout=timeout or None) as http:
        where = serviceUrl(base, topic)
        yield ScittClient(where, http, timeout, urls=urls, settings=settings)


def serviceUrl(base: str, topic: str | None) -> str:
    """
    The URL above the resources of a service.

    @param base: that of a broker, or of another service.
    @param topic: the topic, whose resources are below that; C{None} for those at the root.
    """
    if topic is not None:
        return f"{base}/scitt/{quote(topic)}"
    parts = urlsplit(base)
    return f"{parts.scheme}://{parts.netloc}"


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
        return askedService(given, click.get_current_context().params["topic"])

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

    With --checkpoint it is of the tree that the newest checkpoint of the broker's log has, cosigned
    by the log's witnesses, if any: svcbroker proof scitt verify --checkpoint checks both, offline.

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
    Command(
        "issuer",
        "Fetch the keys of an issuer that is named by did:web, for the policy of a service.",
        place="scittissuer",
        example="svcbroker proof scitt issuer did:web:acme.example --output acme-keys",
    ),
)
"""The commands of C{svcbroker proof scitt}."""
