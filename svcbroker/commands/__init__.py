"""
The console script C{svcbroker}: what operators do beside the daemon, one module a command.

To add a command, write a module here with a class C{Options} (of
L{CommandOptions<svcbroker.commands._command.CommandOptions>}) and a function
C{run(options, console) -> int}, and give it a line in L{COMMANDS}. A module is imported only
when its command is used.
"""

from ._main import main
from ._table import COMMANDS

__all__ = ["COMMANDS", "main"]
