"""
C{svcbroker run}: the daemon in the foreground. The service and its options are those of
C{twistd svcbroker}.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from twisted.application.service import ServiceMaker
from twisted.scripts.twistd import ServerOptions, runApp  # type: ignore[attr-defined]

from .. import tap
from ..daemon.config import Config
from ..daemon.dependencies import StartError
from ..daemon.plan import Plan
from ._command import CommandError, Console, Exit
from ._options import CommandOptions

_NAME = "svcbroker"


class Options(CommandOptions, tap.Options):
    """
    The options of C{svcbroker run}: all settings of the daemon, and those of the process.
    """

    synopsis = "[options]"
    longdesc = (
        "Every setting can also stand in a TOML file, under the same name. "
        "An option given here wins over the file. "
        "An ENDPOINT may be a port number, which is served on loopback."
    )
    optFlags = [
        ["check", None, "Read the configuration, say what would be served, and end."],
    ]
    optParameters = [
        ["pidfile", None, "", "A file for the process's number. [default: none]"],
        ["logfile", "l", "", "Where the log goes. [default: standard output]"],
    ]


def run(options: Options, console: Console) -> int:
    """
    Run the daemon until a signal stops it.

    @raise CommandError: it cannot start.
    """
    if options["check"]:
        for line in describe(options["config"], options["plan"]):
            console.say(line)
        refusal = options["plan"].access.refusal
        if refusal:
            raise CommandError(refusal, Exit.BAD)
        return Exit.GOOD
    # What twistd makes of its own command line; the service's options are parsed already.
    twistd: Any = ServerOptions()
    twistd.parseOptions(
        [
            *("--nodaemon", "--no_save"),
            *(f"--pidfile={options['pidfile']}", f"--logfile={options['logfile']}"),
        ]
    )
    twistd.subCommand, twistd.subOptions, options.parent = _NAME, options, twistd
    twistd.loadedPlugins = {_NAME: ServiceMaker(_NAME, tap.__name__, "", _NAME)}
    try:
        runApp(twistd)
    except StartError as error:
        raise CommandError(str(error), Exit.BAD) from None
    return Exit.GOOD


def describe(config: Config, plan: Plan) -> Iterator[str]:
    """What a configuration has served, in lines for people."""
    yield f"svcbroker {plan.version} would serve"
    for port in plan.ports:
        where = f", under {plan.basePath or '/'}" if port.name == "http" else ""
        yield f"  {port.name.upper()} at {port.text}{where}"
    for group in config.groups:
        yield f"  group {group.id} from the ledger {group.ledger or config.ledger}"
    for line in plan.access.describe():
        yield f"  to {line}"
    yield f"with its data in {Path(plan.dataDir).absolute()}"
