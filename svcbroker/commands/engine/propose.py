"""
C{svcbroker engine propose}: propose a change of the validators, still without signatures.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.python import usage

from ...chain import ValidatorSet
from ...ledgers.changing import proposeChange
from ...ledgers.cometbft.provisioning import GENESIS, engineOrder
from .._command import CommandError, Console, Exit
from .._daemon import DaemonClient, DaemonOptions, askDaemon
from ._files import chainOf, describeChange, keyFrom, loadGenesis, tried, writeNew


class Options(DaemonOptions):
    """
    The options of C{svcbroker engine propose}.
    """

    synopsis = (
        "--output FILE [--add KEY|REQUEST]... [--remove KEY|REQUEST]... [options] HOME DATA-DIR|URL"
    )
    longdesc = (
        "Reads the current validators from the daemon on DATA-DIR. A KEY is a validator's public "
        "key, or its first digits for --remove; a REQUEST is the file of a node's join request."
    )
    optParameters: list[list[Any]] = [
        ["output", "o", None, "The new file to write."],
    ]

    def __init__(self) -> None:
        super().__init__()
        self["add"], self["remove"] = [], []

    def opt_add(self, key: str) -> None:
        """A validator to add; may be given more than once."""
        self["add"].append(key)

    def opt_remove(self, key: str) -> None:
        """A validator to remove; may be given more than once."""
        self["remove"].append(key)

    def parseArgs(self, home: str, dataDir: str) -> None:  # type: ignore[override]
        """See C{usage.Options}."""
        self.setDaemon(dataDir)
        self["home"] = Path(home).absolute()

    def postOptions(self) -> None:
        """See C{usage.Options}."""
        super().postOptions()
        if not self["output"]:
            raise usage.UsageError("--output is needed")
        if not (self["add"] or self["remove"]):
            raise usage.UsageError("--add or --remove is needed")


def run(options: Options, console: Console) -> int:
    """Propose the change."""

    async def ask(daemon: DaemonClient) -> Any:
        return await daemon.call("validators", groupId=options["group"])

    home: Path = options["home"]
    chain = chainOf(home)
    name = loadGenesis(home / GENESIS)[1].chainId
    add = [keyFrom(text, chain=name) for text in options["add"]]
    current = readSet(askDaemon(options, ask))
    remove = [_keyIn(current, text) for text in options["remove"]]
    document = tried(
        lambda: proposeChange(chain, current, add=add, remove=remove, order=engineOrder)
    )
    writeNew(Path(options["output"]), document.encode())
    for line in describeChange(document):
        console.say(line)
    return Exit.GOOD


def readSet(answer: Any) -> ValidatorSet:
    """
    The validator set in a daemon's answer.

    @raise CommandError: the answer is no valid set.
    """
    try:
        keys = tuple(bytes.fromhex(node["nodeId"]) for node in answer["nodes"])
        made = ValidatorSet(answer["changes"], keys)
        return ValidatorSet.decode(made.encoded)
    except Exception as error:
        raise CommandError(f"the daemon's answer is no validator set: {error}") from None


def _keyIn(current: ValidatorSet, text: str) -> bytes:
    found = [key for key in current.keys if len(text) >= 8 and key.hex().startswith(text.lower())]
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        raise CommandError(f"more than one validator begins with {text}")
    if Path(text).is_file():
        return keyFrom(text)
    raise CommandError(f"there is no validator {text}, and no join request of that name")
