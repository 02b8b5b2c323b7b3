"""
The console script C{svcbroker}: publishing, reading, and the work of operators beside the daemon.

To add a command, write it in the module of its subject, as
L{Command<svcbroker.commands.commandline.Command>} says, and give it a line in
L{COMMANDS<svcbroker.commands.commandline.COMMANDS>}. A module is imported only when its command is
used.
"""

from .commandline import main
