"""
The configuration: every setting once, with its type, its default and its help.

L{Config} declares the settings of the daemon itself; each feature declares its own. The command
line's options, what a TOML file may hold and the table in the documentation are all made from
L{SETTINGS}.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import copy
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar

from attrs import Factory, field, frozen

from ..access import BUILT_IN_ROLES, grantsOf
from ..files import parseToml, readFile
from ..interfaces import Action
from ..net.settings import (
    Choice,
    ConfigError,
    Flag,
    List,
    Seconds,
    Setting,
    Text,
    WholeNumber,
    advertised,
    anyText,
    basePath,
    declaredSettings,
    declareSetting,
    filePath,
    someText,
    topicName,
)
from ..operations import WEEVENT
from .features import FEATURES
from .traces import receiverUrl

S = TypeVar("S")

_GROUP_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_GRANTS_COMMA = re.compile(
    rf",\s*(?=(?:deny|{'|'.join(each.value for each in Action)}|\*)\s"
    rf"|(?:{'|'.join(BUILT_IN_ROLES)})\s*(?:,|$))"
)


def dialect(text: str) -> str:
    """The name of a dialect; nothing is none."""
    if text not in {"", WEEVENT.name}:
        raise ValueError(f"is not {WEEVENT.name}: {text!r}")
    return text


def groupId(text: str) -> str:
    """A group's id, which is also the name of its directory."""
    if _GROUP_ID.fullmatch(text) is None:
        raise ValueError(
            f"has an id that is not 1 to 64 of [A-Za-z0-9._-] without a dot in front: {text!r}"
        )
    return text


@frozen(kw_only=True)
class GroupSetting:
    """
    A group that is served.

    @ivar id: its id, also the name of its directory.
    @ivar ledger: the description of its ledger; C{None} takes C{--ledger}.
    """

    id: str
    ledger: str | None = None

    def __str__(self) -> str:
        """The group as a command line has it."""
        return self.id if self.ledger is None else f"{self.id}={self.ledger}"


def groupSetting(text: str) -> GroupSetting:
    """A group, and the description of its ledger if it has one of its own."""
    id, equals, description = text.partition("=")
    return GroupSetting(id=groupId(id.strip()), ledger=someText(description) if equals else None)


def distinctGroups(groups: tuple[GroupSetting, ...]) -> tuple[GroupSetting, ...]:
    """Groups, at least one and each once."""
    if not groups:
        raise ValueError("needs at least one group")
    # Ids are directories, and some file systems do not tell upper case from lower.
    ids = [group.id.lower() for group in groups]
    for group in groups:
        if ids.count(group.id.lower()) > 1:
            raise ValueError(f"has {group.id!r} twice (upper and lower case count as one)")
    return groups


def grantLines(texts: tuple[str, ...]) -> tuple[str, ...]:
    """
    Grants and names of built-in roles, one each. A comma parts them only where one may begin, as
    topics may have commas, too.
    """
    lines = tuple(line.strip() for text in texts for line in _GRANTS_COMMA.split(text))
    grantsOf(lines)
    return lines


def _defaults() -> Mapping[type, Any]:
    return {each.settings: each.settings() for each in FEATURES}


@frozen(kw_only=True)
class Config:
    """
    Everything that an operator can choose. A bad value raises L{ConfigError}.

    What needs more than the value itself to be judged (whether an endpoint can be listened on,
    whether a ledger exists) is judged by C{tap.py}.
    """

    accounts: str = declareSetting(
        "accounts",
        Text(metavar="FILE", normalise=anyText),
        "",
        "the file of the accounts; svcbroker admin account add makes it",
        shown="none",
    )
    auth: tuple[str, ...] = declareSetting(
        "auth",
        List(of=Text(metavar="DESCRIPTION", normalise=someText)),
        (),
        "a further authenticator of clients; see --help-auth; may be given more than once",
        shown="none",
    )
    anonymous: tuple[str, ...] = declareSetting(
        "anonymous",
        List(of=Text(metavar="GRANTS", normalise=someText), finish=grantLines),
        (),
        "what clients without credentials may do: grants such as 'subscribe 1 news/#', or "
        "built-in roles, with commas between them; may be given more than once",
        shown="none",
    )
    auditTopic: str = declareSetting(
        "audit-topic",
        Text(metavar="TOPIC", normalise=topicName),
        "$svc/audit",
        "the topic in which log-ins, refusals, operator calls and reloads are recorded where there "
        "are accounts; empty switches that off",
    )
    basePath: str = declareSetting(
        "base-path",
        Text(metavar="PATH", normalise=basePath),
        "/svcbroker",
        "the context path in front of /rest, /admin, /jsonrpc and the paths of WebSockets",
    )
    dialect: str = declareSetting(
        "dialect",
        Text(metavar="NAME", normalise=dialect),
        "",
        f"{WEEVENT.name}: serve clients of WeEvent 1.1, unchanged, at {WEEVENT.basePath}",
        shown="none",
    )
    dataDir: Path = declareSetting(
        "data-dir",
        Text(metavar="PATH", normalise=filePath, type=Path),
        Path("svcbroker-data"),
        "the directory of all that is kept; made when it is missing",
        shown="./svcbroker-data",
    )
    ledger: str = declareSetting(
        "ledger",
        Text(metavar="DESCRIPTION", normalise=someText),
        "pbft:nodes=4",
        "the ledger of groups that name none; see --help-ledger",
    )
    groups: tuple[GroupSetting, ...] = declareSetting(
        "group",
        List(
            of=Text(metavar="ID[=DESCRIPTION]", normalise=groupSetting, type=GroupSetting),
            finish=distinctGroups,
        ),
        (GroupSetting(id="1"),),
        "a group to serve, and its ledger; may be given more than once",
        shown="1",
    )
    maxContent: int = declareSetting(
        "max-content",
        WholeNumber(metavar="BYTES", minimum=1, maximum=64 * 1024 * 1024),
        1024 * 1024,
        "the largest content of an event",
    )
    maxUnsent: int = declareSetting(
        "max-unsent",
        WholeNumber(metavar="BYTES", minimum=0, maximum=1 << 40),
        0,
        "the most bytes of answers and deliveries that wait until clients read them, over all "
        "connections; one account, or one address of clients without one, may have a quarter",
        shown="256 MiB, or an eighth of the memory that the process may use where that is less",
    )
    chainTimeout: float = declareSetting(
        "chain-timeout",
        Seconds(maximum=3600),
        10.0,
        "how long a call waits for the chain before it answers TIMEOUT",
        shown="10",
    )
    logFormat: str = declareSetting(
        "log-format",
        Choice(words=("auto", "text", "json", "journal")),
        "auto",
        "how the log is written: lines for people, JSON lines, or entries of systemd's journal; "
        "auto is journal where standard output goes to the journal, and text elsewhere",
    )
    logLevel: str = declareSetting(
        "log-level",
        Choice(words=("debug", "info", "warn", "error")),
        "info",
        "the least level that is logged; read again from the file of --config on SIGHUP",
    )
    traces: str = declareSetting(
        "traces",
        Text(metavar="URL", normalise=receiverUrl),
        "",
        "where spans of publishes and webhooks are sent: the URL of an OTLP/HTTP receiver, such as "
        "http://127.0.0.1:4318/v1/traces; needs svcbroker[tracing]",
        shown="none",
    )
    faults: bool = declareSetting(
        "faults",
        Flag(),
        False,
        "let operators stop nodes and break the network between them, to try an application",
        shown="off",
    )
    advertise: str = declareSetting(
        "advertise",
        Text(metavar="HOST:PORT", normalise=advertised),
        "",
        "what this broker is called in listNodes",
        shown="where HTTP listens",
    )
    shutdownTimeout: float = declareSetting(
        "shutdown-timeout",
        Seconds(maximum=3600),
        30.0,
        "how long a stop may take before unfinished work is given up",
        shown="30",
    )
    _features: Mapping[type, Any] = field(default=Factory(_defaults))
    outdated: tuple[str, ...] = field(default=(), eq=False)
    """Settings of earlier releases that were given and have no effect, a line each."""

    def of(self, kind: type[S]) -> S:
        """The settings that a class of a feature declares."""
        found: S = self._features[kind]
        return found

    def value(self, setting: Setting) -> Any:
        """The value of any setting."""
        owner = self if setting.owner is Config else self._features[setting.owner]
        return getattr(owner, setting.attribute)

    def change(self, values: Mapping[Setting, Any]) -> Config:
        """
        A configuration in which some settings have other values.

        @raise ConfigError: a value cannot be used.
        """
        changed = copy(self)
        features = dict(self._features)
        for setting, value in values.items():
            owner = changed
            if setting.owner is not Config:
                if features[setting.owner] is self._features[setting.owner]:
                    features[setting.owner] = copy(features[setting.owner])
                owner = features[setting.owner]
            # Not by evolve: what is converted need not be what can be converted.
            object.__setattr__(owner, setting.attribute, setting.check(value))
        object.__setattr__(changed, "_features", features)
        return changed


SETTINGS: tuple[Setting, ...] = (
    *declaredSettings(Config),
    *(setting for each in FEATURES for setting in declaredSettings(each.settings)),
)
"""Every setting, in the order in which help texts show them."""


_ASK_EACH: Final = "each broker answers for itself: ask the others at their own URLs"

OUTDATED: Final[Mapping[str, str]] = {
    "follow-timeout": "a client of follow may read nothing for 60 seconds",
    "max-levels": "a pattern has at most 128 levels",
    "peer": _ASK_EACH,
    "peer-credentials": _ASK_EACH,
    "peer-timeout": _ASK_EACH,
    "webhook-connections": "at most 64 events are under way to webhooks",
    "witness-blocks": "witnesses are asked after 1000 blocks",
}
"""Settings of earlier releases: they may still be given, and have no effect."""


def makeConfig(*sources: Mapping[str, Any]) -> Config:
    """
    A configuration from settings by name. Those that are L{OUTDATED} are told of in
    C{Config.outdated}.

    @param sources: settings by their names; a later source wins.
    @raise ConfigError: a name is unknown, or a value cannot be used.
    """
    known = {setting.name: setting for setting in SETTINGS}
    chosen: dict[Setting, Any] = {}
    outdated: dict[str, str] = {}
    for source in sources:
        for name, value in source.items():
            if name in OUTDATED:
                told = f"is no setting any more, and has no effect: {OUTDATED[name]}"
                outdated[name] = f"{name} {told}"
                continue
            if name not in known:
                nearest = get_close_matches(name, known, 1)
                hint = f"; did you mean {nearest[0]}?" if nearest else ""
                raise ConfigError(f"{name}: there is no such setting{hint}")
            chosen[known[name]] = value
    return Config(outdated=tuple(outdated.values())).change(chosen)


MAX_FILE_SIZE: Final = 1024 * 1024
"""The largest configuration file, in bytes."""


def _lineOf(name: str, text: str) -> str:
    """The line of a key in a TOML text, in words; nothing where that cannot be seen."""
    quoted = re.escape(name)
    pattern = re.compile(rf"\s*\[*\s*[\"']?{quoted}[\"']?\s*[\].=]")
    for number, line in enumerate(text.splitlines(), 1):
        if pattern.match(line):
            return f", line {number}"
    return ""


def readSettings(path: Path) -> dict[str, Any]:
    """
    The settings of a TOML file by their names, checked one by one.

    @raise ConfigError: it cannot be read or is not TOML, a key is unknown, or a value cannot
        be used. The text names the file, the line where that is known, and the key.
    """
    settings, mistakes = readMistakes(path)
    for mistake in mistakes.values():
        raise mistake
    return settings


def readMistakes(path: Path) -> tuple[dict[str, Any], Mapping[str, ConfigError]]:
    """
    The settings of a TOML file by their names, and what is wrong with those that cannot be used.

    @raise ConfigError: it cannot be read or is not TOML.
    """
    try:
        raw = readFile(path, MAX_FILE_SIZE)
    except OSError as error:
        raise ConfigError(f"config: cannot read {path}: {error.strerror}") from error
    if len(raw) > MAX_FILE_SIZE:
        raise ConfigError(f"config: {path} is larger than {MAX_FILE_SIZE} bytes")
    try:
        settings = parseToml(raw)
    except ValueError as error:
        raise ConfigError(f"config: {path} {error}") from error
    return settings, dict(_findMistakes(path, raw.decode("utf-8"), settings))


def _findMistakes(
    path: Path, text: str, settings: Mapping[str, Any]
) -> Iterator[tuple[str, ConfigError]]:
    for name, value in settings.items():
        try:
            makeConfig({name: value})
        except ConfigError as error:
            yield name, ConfigError(f"{path}{_lineOf(name, text)}: {error}")
