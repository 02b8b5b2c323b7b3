"""
C{svcbroker topic}: the topics of a group.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from ..errors import BrokerError
from .arguments import PATH, jsonOption, options
from .clientcommand import clientCommand
from .commandline import Command
from .terminal import CommandError, Console, quoted, showTable, timeText

if TYPE_CHECKING:
    from ..client import Client, TopicInfo

_AS_JSON: Final = jsonOption("Show each topic as a line of JSON.")
_HEXADECIMAL: Final = 64
_SIGN: Final = click.option(
    "--sign",
    type=PATH,
    metavar="FILE",
    help="The file with the private key of an admin, who signs the recipients.",
)


def _jsonText(info: TopicInfo) -> str:
    return msgspec.json.encode(info).decode("utf-8")


@clientCommand("List the open topics.\n\nThey come in the order of their creation.")
@options(_AS_JSON)
def _list(console: Console, client: Client, asJson: bool) -> None:
    topics = client.topics()
    if asJson:
        for each in topics:
            console.say(_jsonText(each))
        return
    names = [quoted(each.topicName) for each in topics]
    rows = [
        (name, timeText(each.createdTimestamp)) for name, each in zip(names, topics, strict=True)
    ]
    showTable(console, ("topic", "created"), rows, names)


def _keys(given: tuple[str, ...], option: str) -> list[bytes]:
    try:
        keys = [bytes.fromhex(each) for each in given if len(each) == _HEXADECIMAL]
    except ValueError:
        keys = []
    if len(keys) != len(given):
        raise CommandError(f"{option}: a public key has {_HEXADECIMAL} hexadecimal digits")
    return keys


@clientCommand("Create topics, or open them again.")
@options(
    click.argument("names", metavar="TOPIC...", nargs=-1, required=True),
    click.option(
        "--author",
        "authors",
        metavar="KEY",
        multiple=True,
        help="The public key of an author: only authors may publish then. May come again.",
    ),
    click.option(
        "--admin",
        "admins",
        metavar="KEY",
        multiple=True,
        help="A public key that may change the authors. May come again.",
    ),
    click.option(
        "--recipients",
        metavar="NAME,...",
        help="The recipients whose receipts are expected, in topics receipts/NAME. An admin "
        "signs them with --sign.",
    ),
    _SIGN,
    _AS_JSON,
)
def _open(
    console: Console,
    client: Client,
    names: tuple[str, ...],
    authors: tuple[str, ...],
    admins: tuple[str, ...],
    recipients: str | None,
    sign: Path | None,
    asJson: bool,
) -> None:
    keys = {"authors": _keys(authors, "--author"), "admins": _keys(admins, "--admin")}

    def openOne(name: str) -> None:
        client.open(name, **keys)
        if recipients is not None:
            _expect(client, name, recipients, sign)

    _each(console, names, "open", openOne, asJson)


def _expect(client: Client, topic: str, recipients: str, sign: Path | None) -> None:
    """
    Say whose receipts are expected: an event that only the topic's admins may publish.

    @raise CommandError: it cannot be said so.
    """
    from ..proofs import EXPECTED, ProofInvalid, encodeExpected
    from .inputs import readAuthorKey

    key = None if sign is None else readAuthorKey(sign)
    admins = [bytes.fromhex(each) for each in client.state(topic).admins or ()]
    if admins and (key is None or key.public not in admins):
        raise CommandError("--sign: one of the admins of the topic signs its recipients")
    chain = bytes.fromhex(client.checkpoint().chain)
    try:
        content = encodeExpected(chain, topic, [each for each in recipients.split(",") if each])
    except ProofInvalid as error:
        raise CommandError(f"--recipients: {error}") from None
    client.open(EXPECTED + topic, authors=admins)
    client.publish(EXPECTED + topic, content, author=key, recipients=())


@clientCommand(
    """\
    Say whose receipts are expected for a topic.

    NAMES are separated by commas: of recipients who sign receipts in topics receipts/NAME. They
    take the place of those before; an empty text expects none. Where the topic has admins, one of
    them signs.
    """
)
@options(click.argument("topic"), click.argument("names"), _SIGN, _AS_JSON)
def _recipients(
    console: Console, client: Client, topic: str, names: str, sign: Path | None, asJson: bool
) -> None:
    _each(console, [topic], "expected", lambda name: _expect(client, name, names, sign), asJson)


def _each(
    console: Console, names: Sequence[str], done: str, call: Callable[[str], object], asJson: bool
) -> None:
    """Make a call for each topic, and say of which it was done."""
    for number, name in enumerate(names):
        try:
            call(name)
        except BrokerError:
            console.warn(f"not {done}: {', '.join(map(quoted, names[number:]))}")
            raise
        console.say(
            json.dumps({"topicName": name, done: True}) if asJson else f"{done}: {quoted(name)}"
        )


@clientCommand("Close topics.\n\nNothing can be published to them then, and what is stored stays.")
@options(click.argument("names", metavar="TOPIC...", nargs=-1, required=True), _AS_JSON)
def _close(console: Console, client: Client, names: tuple[str, ...], asJson: bool) -> None:
    _each(console, names, "closed", client.close, asJson)


@clientCommand("Show what the chain knows of an open topic.")
@options(click.argument("name", metavar="TOPIC"), _AS_JSON)
def _info(console: Console, client: Client, name: str, asJson: bool) -> None:
    state = client.state(name)
    if asJson:
        console.say(_jsonText(state))
        return
    lines = [
        ("topic", quoted(state.topicName)),
        ("events", str(state.sequenceNumber)),
        ("last block", str(state.blockNumber) if state.blockNumber else "none"),
        ("created", timeText(state.createdTimestamp)),
        ("by", quoted(state.senderAddress)),
        *(("author", each) for each in state.authors or ()),
        *(("admin", each) for each in state.admins or ()),
    ]
    for label, text in lines:
        console.say(f"{label:12}{text}")


HELP: Final = "An event is published to an open topic. Patterns of topics are for readers only."
COMMANDS: Final = (
    Command.of("list", _list, "svcbroker topic list --json"),
    Command.of("open", _open, "svcbroker topic open weather/zurich weather/bern"),
    Command.of(
        "recipients",
        _recipients,
        "svcbroker topic recipients weather/zurich ann,bob --sign ann.pem",
    ),
    Command.of("close", _close, "svcbroker topic close weather/zurich"),
    Command.of("info", _info, "svcbroker topic info weather/zurich"),
)
