"""
Commands that have an option for each setting of the daemon.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any

import click
from twisted.python import usage

from ..daemon.config import OUTDATED, SETTINGS
from ..daemon.features import FEATURES
from ..daemon.options import ConfigOptions
from ..net.settings import List, Setting
from .arguments import makeCommand
from .terminal import CommandError, Console, Exit


def settingsCommand(
    help: str, makeOptions: Callable[[], ConfigOptions]
) -> Callable[[Callable[..., int | None]], click.Command]:
    """
    Make a command of a function that is called with the console, the parsed options and the
    command's own parameters, and returns the exit code, or nothing for success.

    @param makeOptions: makes the options, as C{twistd svcbroker} has them. They parse the values.
    """

    def decorate(function: Callable[..., int | None]) -> click.Command:
        settings = {str(each.name): each for each in _settings(makeOptions())}

        @wraps(function)
        def call(console: Console, /, **given: Any) -> int | None:
            parsed = makeOptions()
            try:
                parsed.parseOptions(
                    [*_words({settings[each]: given.pop(each) for each in settings})]
                )
            except usage.UsageError as error:
                raise CommandError(str(error)) from None
            except SystemExit as ended:
                # --help-ledger ends so, after it has written to standard output.
                return ended.code if isinstance(ended.code, int) else Exit.GOOD
            return function(console, parsed, **given)

        command = makeCommand(help, _sections(settings))(call)
        command.params.extend(settings.values())
        return command

    return decorate


def _words(given: Mapping[click.Option, Any]) -> Iterator[str]:
    """The words of a command line that has these values."""
    for option, value in given.items():
        name = option.opts[-1]
        if value is True:
            yield name
        elif value not in (None, False):
            values: Sequence[str] = value if option.multiple else [value]
            yield from (f"{name}={each}" for each in values)


def _sections(names: Iterable[str]) -> dict[str, Collection[str]]:
    """The parameters by the titles of the sections in which a help text shows them."""
    titles = {type(None): "Settings"}
    titles |= {each.settings: f"Settings of {each.name}" for each in FEATURES}
    owners = {f"setting_{_identifier(each.name)}": each.owner for each in SETTINGS}
    sections: dict[str, list[str]] = {"Settings": []}
    for name in names:
        owner = owners.get(name.replace("setting_no_", "setting_"))
        sections.setdefault(titles.get(owner or type(None), "Settings"), []).append(name)
    return {**sections}


def _identifier(name: str) -> str:
    return name.replace("-", "_")


def _settings(options: Any) -> Iterator[click.Option]:
    """The options of C{usage.Options}, as click has them."""
    takeValue = {name.removesuffix("=") for name in options.longOpt if name.endswith("=")}
    known = {each.name: each for each in SETTINGS}
    for name in sorted({each.removesuffix("=") for each in options.longOpt}):
        if options.synonyms.get(name, name) != name or name in ("help", "version"):
            continue
        setting = known.get(name)
        text = options.docs.get(name) or ""
        if setting is not None and name in takeValue:
            text = f"{setting.help} [default: {setting.default}]"
        yield click.Option(
            # Any parameter's name would do, but it must be an identifier.
            [f"--{name}", f"setting_{_identifier(name)}"],
            # Of False, click makes an option whose value may be left out.
            is_flag=None if name in takeValue else True,
            multiple=setting is not None and isinstance(setting.kind, List),
            metavar=_metavar(setting) if name in takeValue else None,
            help=" ".join(text.split()),
            hidden=name in OUTDATED,
        )


def _metavar(setting: Setting | None) -> str:
    # Only the configuration file is no setting.
    return "FILE" if setting is None else setting.kind.metavar
