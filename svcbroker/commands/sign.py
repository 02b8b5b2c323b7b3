"""
C{svcbroker sign}: sign an event as its author, offline.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from twisted.python import usage

from ..client import AuthorKey
from ..errors import BrokerError
from ..model import checkExtensions, checkTopicName, isIdempotencyKey
from ._command import CommandError, Console, Exit
from ._keys import readPrivateKey
from ._options import CommandOptions, readChain


class Options(CommandOptions):
    """
    The options of C{svcbroker sign}.
    """

    synopsis = "--key FILE --chain HASH --topic NAME [options] [CONTENT]"
    longdesc = (
        "Writes the parameters of a publish that say who has signed it, as JSON: author, signature "
        "and signedAt. CONTENT is the event's content; without it, standard input is read, with "
        "every byte that comes. Nothing is sent. Publish the event with the same topic, content, "
        "extensions and idempotency key, and with these parameters. The file of the key is PEM, "
        "as svcbroker keygen and openssl genpkey -algorithm ed25519 make it."
    )
    optParameters = [
        ["key", None, None, "The file with the author's private key."],
        ["chain", None, None, "The id of the chain: the hash of its genesis."],
        ["topic", None, None, "The topic that the event is for."],
        ["time", None, None, "When it is signed, in milliseconds since 1970; by default now."],
        ["idempotency-key", None, None, "The idempotency key of the event."],
    ]

    def __init__(self) -> None:
        super().__init__()
        self["extensions"] = {}
        self["content"] = None

    def opt_extension(self, value: str) -> None:
        """An extension of the event: NAME=VALUE. May be given several times."""
        name, equals, text = value.partition("=")
        if not equals or name in self["extensions"]:
            raise usage.UsageError(f"--extension: {value!r} is not NAME=VALUE, or comes again")
        self["extensions"][name] = text

    def parseArgs(self, content: str | None = None) -> None:
        """See C{usage.Options}."""
        self["content"] = content

    def postOptions(self) -> None:
        """See C{usage.Options}."""
        for name in ("key", "chain", "topic"):
            if self[name] is None:
                raise usage.UsageError(f"--{name} is needed")
        self["chain"] = readChain(self["chain"])
        if self["time"] is not None:
            if not (self["time"].isascii() and self["time"].isdecimal()):
                raise usage.UsageError("--time is a number of milliseconds")
            self["time"] = int(self["time"])
            if self["time"] >= 2**64:
                raise usage.UsageError("--time has 64 bits")
        key = self["idempotency-key"]
        if key is not None and not isIdempotencyKey(key):
            raise usage.UsageError(
                "--idempotency-key has 1 to 64 characters of ASCII, none of them a space"
            )
        try:
            checkTopicName(self["topic"])
            checkExtensions(self["extensions"])
        except BrokerError as error:
            raise usage.UsageError(error.message) from None


def run(options: Options, console: Console) -> int:
    """Sign, and write the parameters."""
    key = readPrivateKey(Path(options["key"]))
    if options["content"] is None:
        content = sys.stdin.buffer.read()
    else:
        try:
            content = options["content"].encode("utf-8")
        except UnicodeEncodeError:
            raise CommandError("CONTENT is not UTF-8: give it on standard input") from None
    signedAt = int(time.time() * 1000) if options["time"] is None else options["time"]
    author = AuthorKey(key.public_key().public_bytes_raw(), key)
    parameters = author.sign(
        chain=options["chain"],
        topic=options["topic"],
        content=content,
        extensions=options["extensions"],
        idempotencyKey=options["idempotency-key"],
        signedAt=signedAt,
    )
    console.say(json.dumps(parameters))
    return Exit.GOOD
