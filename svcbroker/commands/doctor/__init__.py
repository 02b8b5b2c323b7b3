"""
C{svcbroker doctor}: looks at the configuration, the data directory and the machine of a broker,
and says what is wrong and what to do. Nothing is changed, and no lock is taken: a daemon may be
running.

Each module of checks has classes of facts, functions that read these, and functions from these to
findings, which look at nothing else. L{BrokerCheck} calls them all.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import click

from ...daemon.config import Config, makeConfig, readMistakes
from ...daemon.options import ConfigOptions
from ...net.findings import Finding, Level
from ...net.settings import ConfigError
from ..arguments import jsonOption, options
from ..settingscommand import settingsCommand
from ..terminal import CommandError, Console, Exit, counted, printable
from .brokercheck import BrokerCheck

_WIDTH = 7


class DoctorOptions(ConfigOptions):
    """
    The settings of a daemon, of which some may be wrong.
    """

    def postOptions(self) -> None:
        """
        Read the settings that can be used; what is wrong with others is for the findings. See
        C{usage.Options}.
        """
        settings: dict[str, Any] = {}
        self["mistakes"] = []
        if self.file is not None:
            try:
                settings, mistakes = readMistakes(self.file)
            except ConfigError as error:
                self["mistakes"].append(str(error))
            else:
                self["mistakes"].extend(map(str, mistakes.values()))
                settings = {name: settings[name] for name in settings if name not in mistakes}
        try:
            self["config"] = makeConfig(settings, self._given)
        except ConfigError as error:
            raise CommandError(str(error)) from None


@settingsCommand(
    """\
    Say what is wrong with a broker and its machine, and what to do.

    Give it the options of the daemon, such as --config or --data-dir, and run it as the daemon's
    user. The daemon may run or not; nothing is changed, and no lock is taken. It says what it has
    looked at, whether that is good, and what to do where it is not. It takes only a quick look at
    chains: svcbroker chain audit reads all of them.

    Exit codes: 0 no problem was found, 1 a problem was found, 2 wrong usage.
    """,
    DoctorOptions,
)
@options(
    jsonOption("Write each finding and the summary as a line of JSON."),
    click.option("--strict", "isStrict", is_flag=True, help="Exit with 1 for warnings, too."),
    click.option("--quiet", "-q", "isQuiet", is_flag=True, help="Do not show what is good."),
)
def command(console: Console, settings: Any, asJson: bool, isStrict: bool, isQuiet: bool) -> int:
    """Check the broker, and write the findings."""
    config: Config = settings["config"]
    check = BrokerCheck(
        config=config,
        now=time.time(),
        file=settings.file,
        mistakes=settings["mistakes"],
    )
    counts: Counter[Level] = Counter()
    for finding in check.findings():
        counts[finding.level] += 1
        if asJson:
            console.sayJson(_fields(finding))
        elif finding.level is not Level.GOOD or not isQuiet:
            _tell(finding, console)
    problems, warnings = counts[Level.PROBLEM], counts[Level.WARNING]
    if asJson:
        summary = {"problems": problems, "warnings": warnings, "good": counts[Level.GOOD]}
        console.sayJson(summary)
    else:
        console.say(f"{counted(problems, 'problem')}, {counted(warnings, 'warning')}")
    return Exit.BAD if problems or (warnings and isStrict) else Exit.GOOD


def _tell(finding: Finding, console: Console) -> None:
    text = printable(f"{finding.subject}: {finding.text}")
    console.say(f"{finding.level.value:{_WIDTH}}  {text}")
    for line in filter(None, (finding.meaning, finding.remedy)):
        mark = "-> " if line == finding.remedy else ""
        console.say(f"{'':{_WIDTH}}    {mark}{printable(line)}")


def _fields(finding: Finding) -> dict[str, str]:
    return {
        "level": finding.level.value,
        "subject": finding.subject,
        "finding": finding.text,
        "meaning": finding.meaning,
        "remedy": finding.remedy,
    }
