"""
C{svcbroker engine}: the engines of a CometBFT network of several organisations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from twisted.python import usage

from .._command import Command, CommandOptions, Console

COMMANDS: Final[tuple[Command, ...]] = tuple(
    Command(name, summary, module=f"{__package__}.{name}")
    for name, summary in (
        ("init", "Make a node's keys, and its join request for the others."),
        ("genesis", "Assemble the genesis from the join requests of all first nodes."),
        ("join", "Make the home of a new node of an existing network."),
        ("attest", "Let a broker send to the chain: sign an attestation of it."),
        ("propose", "Propose a change of the validators."),
        ("sign", "Sign a change of the validators, with this node's key."),
        ("merge", "Put the signatures of several copies of a change together."),
        ("show", "Show a change or a join request, and who has signed."),
        ("submit", "Submit a change with enough signatures to a running daemon."),
    )
)
"""What there is to be done with engines, in the order in which a network needs it."""


class Options(CommandOptions):
    """
    The options of C{svcbroker engine}: one more command.
    """

    longdesc = (
        "A HOME is an engine's home directory. Private keys stay in it; what these commands print "
        "and write elsewhere is public."
    )

    def __init__(self) -> None:
        self.subCommands = [
            [command.name, None, _Loader(command), command.summary] for command in COMMANDS
        ]
        super().__init__()

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """See C{usage.Options}. What stands behind the name of a command is that one's."""
        super(CommandOptions, self).parseOptions(options)

    def getSynopsis(self) -> str:
        """See C{usage.Options}. It also precedes the usage of each command."""
        own = "COMMAND ..." if self.subCommand is None else ""
        return f"Usage: svcbroker engine {own}".rstrip()

    def postOptions(self) -> None:
        """See C{usage.Options}."""
        if self.subCommand is None:
            raise usage.UsageError("which command? See: svcbroker engine --help")


class _Loader:
    """Makes a command's options once it is chosen."""

    def __init__(self, command: Command) -> None:
        self._command = command

    def __call__(self) -> Any:
        return self._command.load().Options()


def run(options: Options, console: Console) -> int:
    """Run the command."""
    commands = {command.name: command for command in COMMANDS}
    chosen: Any = options.subCommand
    code: int = commands[chosen].load().run(options.subOptions, console)
    return code
