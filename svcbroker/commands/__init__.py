"""
The console script C{svcbroker}: publishing, reading, and what operators do beside the daemon, one
module a command.

To add a command, write a module here as L{Command<svcbroker.commands._command.Command>} says, and
give it a line in L{COMMANDS}. A module is imported only when its command is used.
"""

from ._main import main
from ._table import COMMANDS

__all__ = ["COMMANDS", "main"]
