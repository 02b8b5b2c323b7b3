"""
C{svcbroker run}: the daemon in the foreground, whose service and options are those of
C{twistd svcbroker}.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from twisted.application.service import ServiceMaker
from twisted.internet.task import Clock
from twisted.scripts.twistd import ServerOptions, runApp  # type: ignore[attr-defined]

from .. import tap
from ..daemon.config import Config
from ..daemon.dependencies import StartError
from ..daemon.directory import LOCK_NAME
from ..daemon.memory import planMemory, usableMemory
from ..daemon.plan import Plan, findRefusals
from ..files import writeNew
from ..net.bounds import amountText
from .arguments import options
from .commandline import PROGRAM
from .settingscommand import settingsCommand
from .terminal import CommandError, Console, Exit


@settingsCommand(
    """\
    Run the daemon, until Ctrl-C.

    Every setting can also stand in a TOML file, under the same name. An option given here wins
    over the file. An ENDPOINT may be a port number, which is served on loopback.
    """,
    tap.Options,
)
@options(
    click.option(
        "--check",
        is_flag=True,
        help="Say what would be served, or why the daemon would not start, and end.",
    ),
    click.option(
        "--demo",
        is_flag=True,
        help="Show a day of three companies in the console, in a temporary directory.",
    ),
    click.option(
        "--pidfile",
        default="",
        metavar="FILE",
        help="A file for the process's number. [default: none]",
    ),
    click.option(
        "--logfile",
        "-l",
        default="",
        metavar="FILE",
        help="Where the log goes. [default: standard output]",
    ),
)
def runCommand(
    console: Console, settings: Any, check: bool, demo: bool, pidfile: str, logfile: str
) -> None:
    """
    Run the daemon until a signal stops it.

    @raise CommandError: it cannot start.
    """
    if check:
        checkStart(console, settings["config"], settings["plan"])
        return
    with ExitStack() as stack:
        if demo:
            useDemo(stack.enter_context(TemporaryDirectory(prefix="demo-")), console, settings)
        # What twistd makes of its own command line; the service's options are parsed already.
        twistd: Any = ServerOptions()
        twistd.parseOptions(
            ["--nodaemon", "--no_save", f"--pidfile={pidfile}", f"--logfile={logfile}"]
        )
        twistd.subCommand, twistd.subOptions, settings.parent = PROGRAM, settings, twistd
        twistd.loadedPlugins = {PROGRAM: ServiceMaker(PROGRAM, tap.__name__, "", PROGRAM)}
        try:
            runApp(twistd)
        except StartError as error:
            raise CommandError(str(error), Exit.BAD) from None


def useDemo(directory: str, console: Console, settings: Any) -> None:
    """
    Have the daemon show the demo.

    @raise CommandError: a setting is given that the demo has itself.
    """
    # It imports the clients, which no daemon needs.
    from .demo import Demo

    demo = Demo(Path(directory), console)
    file, own = Path(directory, "svcbroker.toml"), demo.settings()
    given = {*settings.sources(), *(["config"] if settings.file else [])}
    for name in sorted(given & {*own, "config"}):
        raise CommandError(f"--demo has its own {name}")
    text = "".join(f"{name} = {json.dumps(each)}\n" for name, each in own.items())
    writeNew(file, text.encode("ascii"))
    settings.opt_config(str(file))
    settings.postOptions()
    console.say("Writing the events of a day; this takes some seconds.")
    console.output.flush()
    demo.prepare()


def checkStart(console: Console, config: Config, plan: Plan) -> None:
    """
    Say what would be served, or why the daemon would not start.

    @raise CommandError: it would not.
    """
    # Only for this: it imports httpx.
    from .doctor.machinechecks import LocalMachine

    for line in describe(config, plan):
        console.say(line)
    holder = LocalMachine().lockHolder(plan.dataDir / LOCK_NAME)
    if holder is not None:
        console.say(f"A daemon (process {holder}) uses the data: this is about its next start.")
    refusals = list(findRefusals(config, Clock(), isRunning=holder is not None))
    if refusals:
        raise CommandError("\n".join(refusals), Exit.BAD)


def describe(config: Config, plan: Plan) -> Iterator[str]:
    """Describe the services of a configuration, in lines for people."""
    yield f"svcbroker {plan.version} would serve"
    for port in plan.ports:
        where = f", under {plan.basePath or '/'}" if port.name == "http" else ""
        yield f"  {port.name.upper()} at {port.text}{where}"
    for group in config.groups:
        yield f"  group {group.id} from the ledger {group.ledger or config.ledger}"
    for line in plan.access.describe():
        yield f"  to {line}"
    yield f"with its data in {Path(plan.dataDir).absolute()}"
    bounds = planMemory(config, plan, usableMemory())
    yield (
        f"and with at most {amountText(bounds.total)} in memory, of {amountText(bounds.memory)} "
        "that the process may use:"
    )
    yield from bounds.lines()
    if bounds.isOver:
        yield f"WARNING: {bounds.advice}"
    for line in config.outdated:
        yield f"WARNING: {line}"
