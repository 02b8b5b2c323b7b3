"""
C{svcbroker completion}: completion of commands and options in a shell.
"""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

from ._arguments import makeCommand
from ._command import Console, Exit
from ._group import PROGRAM
from ._main import COMPLETE

SHELLS: Final = ("bash", "zsh", "fish")


@makeCommand(
    """\
    Write a script by which a shell completes commands and options.

    \b
    bash: svcbroker completion bash > ~/.local/share/bash-completion/completions/svcbroker
    zsh:  svcbroker completion zsh > "${fpath[1]}/_svcbroker"
    fish: svcbroker completion fish > ~/.config/fish/completions/svcbroker.fish
    """
)
@click.argument("shell", type=click.Choice(SHELLS))
def command(console: Console, shell: str) -> int:
    """Write the script of a shell."""
    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    console.say(kind(root, {}, PROGRAM, COMPLETE).source())
    return Exit.GOOD
