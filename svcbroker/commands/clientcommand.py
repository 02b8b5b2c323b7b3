"""
Commands that ask a broker: the options that say where it is and with which credentials, and the
contexts that keep these under names in a file of the user.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import wraps
from getpass import getpass
from logging import INFO, Handler, LogRecord, getLogger
from pathlib import Path
from shlex import quote
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar
from urllib.parse import urlsplit

import click
from attrs import define, field

from ..daemon.operating import Operating, OperatorFileError, readOperatorFile
from ..errors import BrokerError, NoSuchCall, TopicNotFound
from ..files import readFile, writeNew
from .arguments import CONNECTION, PATH, Decimal, RenamedOption, makeCommand, options
from .terminal import CommandError, Console, Exit, didYouMean

if TYPE_CHECKING:
    from ..client import Client


FIELDS: Final = (
    *("url", "user", "password-file", "token-file", "ca", "cert", "cert-key", "group"),
    *("identity", "recipients"),
)
"""The fields of a context. Secrets are in files of their own."""

_CURRENT: Final = "current"
_CONTEXTS: Final = "contexts"


def contextsPath(environment: Mapping[str, str]) -> Path:
    """The file of the contexts, in the user's directory for configuration."""
    root = environment.get("XDG_CONFIG_HOME") or Path("~").expanduser() / ".config"
    return Path(root) / "svcbroker" / "contexts.toml"


@define
class Contexts:
    """
    The contexts of a user.

    @ivar path: their file.
    @ivar contexts: the fields of each, by its name.
    @ivar current: the name of the one in use.
    """

    path: Path
    contexts: dict[str, dict[str, str]] = field(factory=dict)
    current: str | None = None

    @classmethod
    def read(cls, path: Path) -> Contexts:
        """
        Read a file; without one there are no contexts.

        @raise CommandError: it is malformed.
        """
        try:
            text = readFile(path)
        except FileNotFoundError:
            return cls(path)
        try:
            document: dict[str, Any] = tomllib.loads(text.decode("utf-8"))
        except ValueError as error:
            raise CommandError(f"{path}: {error}") from None
        contexts, current = document.get(_CONTEXTS, {}), document.get(_CURRENT)
        isGood = isinstance(contexts, dict) and isinstance(current, str | None)
        for each in contexts.values() if isGood else ():
            isGood = isGood and isinstance(each, dict) and set(each) <= set(FIELDS)
            isGood = isGood and all(isinstance(value, str) for value in each.values())
            isGood = isGood and "url" in each
        if not isGood:
            raise CommandError(f"{path}: it is not as svcbroker admin context writes it")
        return cls(path, contexts, current)

    def find(self, name: str) -> Mapping[str, str]:
        """
        The fields of a context.

        @raise CommandError: there is none of this name.
        """
        if name not in self.contexts:
            hint = didYouMean(name, list(self.contexts))
            raise CommandError(f"there is no context {name!r}{hint}")
        return self.contexts[name]

    def write(self) -> None:
        """Replace the file as a whole. Its owner alone can read it."""
        lines = [] if self.current is None else [f"{_CURRENT} = {_quoted(self.current)}"]
        for name, fields in self.contexts.items():
            lines += ["", f"[{_CONTEXTS}.{_quoted(name)}]"]
            lines += [f"{key} = {_quoted(value)}" for key, value in fields.items()]
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        made.unlink(missing_ok=True)
        writeNew(made, ("\n".join(lines).strip() + "\n").encode("utf-8"))
        made.replace(self.path)


def _quoted(text: str) -> str:
    # A JSON string without control characters and escaped surrogates is a string of TOML.
    if not text.isprintable():
        raise CommandError(f"{text!r} has characters that cannot be printed")
    return json.dumps(text, ensure_ascii=False)


T = TypeVar("T")

DEFAULT_URL: Final = "http://127.0.0.1:8080/svcbroker"
"""The URL of a broker that was started without options."""

DATA_DIR: Final = Path("svcbroker-data")
"""The daemon's data directory where it is given none."""

URL: Final = "SVCBROKER_URL"
PASSWORD: Final = "SVCBROKER_PASSWORD"
TOKEN: Final = "SVCBROKER_TOKEN"
"""Environment variables: the broker's URL, the password of C{--user}, a token."""

FIELD_OPTIONS: Final = (
    click.option(
        "--user",
        cls=RenamedOption,
        old=["--account"],
        metavar="NAME",
        help=f"An account; its password is in {PASSWORD}, or asked for.",
    ),
    click.option("--password-file", metavar="FILE", help="A file with the account's password."),
    click.option("--token-file", metavar="FILE", help=f"A file with a token, or give {TOKEN}."),
    click.option("--ca", metavar="FILE", help="The authorities of the broker's certificate."),
    click.option("--cert", metavar="FILE", help="The client's certificate."),
    click.option("--cert-key", metavar="FILE", help="The key of the certificate."),
    click.option("--group", metavar="ID", help="The group. [default: the broker's]"),
)
"""The options that a context can keep beside the URL."""

CONNECTION_OPTIONS: Final = (
    click.option(
        "--url",
        metavar="URL",
        multiple=True,
        help="The broker's URL. It may come again, for brokers of one network.",
    ),
    click.option(
        "--data-dir",
        type=PATH,
        metavar="DIR",
        help="Instead: the data directory of a daemon on this machine. Operators need no other "
        "credentials then.",
    ),
    click.option(
        "--config",
        type=PATH,
        metavar="FILE",
        help="Instead: the configuration of a daemon on this machine.",
    ),
    click.option("--context", metavar="NAME", help="Instead: a context."),
    *FIELD_OPTIONS,
    click.option(
        "--timeout",
        type=Decimal(min=0, max=86400),
        default=30.0,
        show_default=True,
        metavar="SECONDS",
        help="How long a call may take with all its attempts.",
    ),
)
IDENTITY: Final = click.option(
    "--identity",
    metavar="FILE",
    help="Open closed events with the identities in this file. [default: the context's]",
)
RECIPIENTS: Final = click.option(
    "--recipients",
    metavar="FILE",
    help="A file with the names of recipients: lines of NAME age1... [default: the context's]",
)
TO: Final = click.option(
    "--to",
    multiple=True,
    metavar="RECIPIENT|NAME|FILE",
    help="Close the content to this recipient (age1...), to this name of --recipients, to all "
    "recipients in a file, or, as org:NAME, to those that an organisation has published. It may "
    "come again. The broker cannot read the content then.",
)
NAMES: Final = (
    *("url", "data_dir", "config", "context", "user", "password_file", "token_file"),
    *("ca", "cert", "cert_key", "group", "timeout"),
)
"""The parameters of L{CONNECTION_OPTIONS}."""

_CLOSING: Final = frozenset({"identity"})
"""The parameters of options of a client that some commands have."""

RETRY_INTERVAL: Final = 2.0
"""Seconds between two lines about calls that are tried again."""

Connect = Callable[[Mapping[str, Any]], AbstractContextManager[Any]]
"""Makes the client of a command from the parameters that say where the broker is."""


def connectedCommand(
    summary: str, connect: Connect
) -> Callable[[Callable[..., int | None]], click.Command]:
    """
    Make a command of a function that is called with the console, a client and the parameters of
    the command, and returns the exit code, or nothing for success.

    @param summary: the help text.
    """

    def decorate(function: Callable[..., int | None]) -> click.Command:
        @wraps(function)
        def call(console: Console, /, **given: Any) -> int | None:
            names = [*NAMES, *_CLOSING.intersection(given)]
            with connect({name: given.pop(name) for name in names}) as client:
                return function(console, client, **given)

        return makeCommand(summary, {CONNECTION: NAMES})(options(*CONNECTION_OPTIONS)(call))

    return decorate


def clientCommand(summary: str) -> Callable[[Callable[..., int | None]], click.Command]:
    """
    The same for a function that is called with a L{Client<svcbroker.client.Client>}.
    """
    return connectedCommand(summary, askedBroker)


def askedBroker(given: Mapping[str, Any]) -> AbstractContextManager[Client]:
    """A client of the broker that the options of the command line name."""
    return connected(*brokerOf(given, os.environ))


def brokerOf(
    given: Mapping[str, Any], environment: Mapping[str, str]
) -> tuple[list[str], dict[str, Any]]:
    """
    The URLs of a broker, and the options of a client.

    @param given: the options of the command line.
    @raise CommandError: they are wrong.
    """
    urls, kept = urlsOf(given, environment)
    return urls, settingsOf(given, kept, environment, askTerminal)


def urlsOf(
    given: Mapping[str, Any], environment: Mapping[str, str]
) -> tuple[list[str], Mapping[str, str]]:
    """The URLs of a broker, and the fields of the context; as L{brokerOf} has them."""
    chosen = chosenBroker(given, environment)
    if isinstance(chosen, Operating):
        chosen = [chosen.url], {}
    elif chosen is None:
        with suppress(OperatorFileError):
            chosen = [readOperatorFile(DATA_DIR).url], {}
    return chosen or ([DEFAULT_URL], {})


@contextmanager
def connected(urls: Sequence[str], options: Mapping[str, Any]) -> Iterator[Client]:
    """
    A client, for as long as the context lasts.

    @raise CommandError: the options are wrong, the broker refuses a call, or there is none.
    """
    from ..client import AnswerInvalid, Client, NotVerified, Unreachable

    if sys.stderr.isatty():
        _tellRetries(sys.stderr)
    try:
        client = Client(*urls, **options, waitForBroker=False)
    except ValueError as error:
        raise CommandError(str(error)) from None
    try:
        with client:
            yield client
    except TopicNotFound as error:
        params = click.get_current_context().params
        topic = params.get("topic") or params.get("pattern") or params.get("name") or ""
        about = f": {topic!r}" if topic and topic not in error.message else ""
        command = " ".join(["svcbroker topic open", *([quote(topic)] if topic else [])])
        raise CommandError(f"{error.message}{about}; open it: {command}", Exit.BAD) from None
    except Unreachable as error:
        hint = "" if error.isSent or error.isFinal else "; svcbroker run starts a daemon"
        raise CommandError(f"{error.message}, at {' or '.join(urls)}{hint}") from None
    except AnswerInvalid as error:
        raise CommandError(f"{noBroker(*urls)} ({error.message})") from None
    except NotVerified as error:
        raise CommandError(error.message, Exit.BAD) from None
    except BrokerError as error:
        if isinstance(error, NoSuchCall) and (hint := noBroker(*urls)).endswith("?"):
            raise CommandError(hint) from None
        raise CommandError(
            f"the broker refused ({error.code}): {error.message}", Exit.BAD
        ) from None


def noBroker(*urls: str) -> str:
    """The error for an answer that is not one of a broker."""
    text = f"there is no svcbroker at {' or '.join(urls)}"
    usual = urlsplit(DEFAULT_URL).path
    others = [each for each in map(urlsplit, urls) if each.path.rstrip("/") != usual]
    if not others:
        return text
    return f"{text}; is it {others[0].scheme}://{others[0].netloc}{usual}?"


class RetryHandler(Handler):
    """
    Tells people now and then that a call is tried again, so that they need not wonder.
    """

    def __init__(self, stream: TextIO, now: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._stream, self._now = stream, now
        self._told = now()

    def emit(self, record: LogRecord) -> None:
        """See C{Handler}."""
        if self._now() - self._told >= RETRY_INTERVAL:
            self._told = self._now()
            self._stream.write(f"{record.getMessage()}\n")
            self._stream.flush()


def _tellRetries(stream: TextIO) -> None:
    logger = getLogger("svcbroker.client")
    if not logger.handlers:
        logger.addHandler(RetryHandler(stream))
        logger.setLevel(INFO)


def chosenBroker(
    given: Mapping[str, Any], environment: Mapping[str, str]
) -> tuple[list[str], Mapping[str, str]] | Operating | None:
    """
    The URLs and the context that the command line, the environment or the context in use name, or
    the daemon on a data directory; C{None} where nothing is named.

    A context is not used beside a URL, so that its credentials are not sent elsewhere.

    @raise CommandError: several are given, there is no such context, or no such daemon.
    """
    urls = list(given["url"])
    ways = ("url", "data_dir", "config", "context")
    named = [f"--{each.replace('_', '-')}" for each in ways if given[each] not in (None, ())]
    if len(named) > 1:
        raise CommandError(f"give {' or '.join(named)}, not both")
    if given["data_dir"] is not None or given["config"] is not None:
        try:
            return readOperatorFile(given["data_dir"] or _dataDirOf(given["config"]))
        except OperatorFileError as error:
            raise CommandError(str(error)) from None
    if not urls and given["context"] is None and environment.get(URL):
        urls = [environment[URL]]
    if urls:
        return urls, {}
    contexts = Contexts.read(contextsPath(environment))
    name = given["context"] or contexts.current
    if name is None:
        return None
    kept = contexts.find(name)
    return [kept["url"]], kept


def namedFile(name: str) -> str | None:
    """
    The file that the command line or the context names.

    @param name: C{identity} or C{recipients}.
    """
    given = click.get_current_context().params
    if given[name] is not None:
        path: str = given[name]
        return path
    return urlsOf(given, os.environ)[1].get(name)


def _dataDirOf(path: Path) -> Path:
    """The data directory that the configuration of a daemon names."""
    try:
        settings = tomllib.loads(readFile(path).decode("utf-8"))
        return Path(settings.get("data-dir", DATA_DIR))
    except (ValueError, TypeError) as error:
        raise CommandError(f"--config: {path}: {error}") from None


def settingsOf(
    given: Mapping[str, Any],
    kept: Mapping[str, str],
    environment: Mapping[str, str],
    readPassword: Callable[[str], str],
) -> dict[str, Any]:
    """
    The options of a client.

    @param given: the options of the command line.
    @param kept: the fields of the context.
    @param readPassword: asks for a password; it is given the question.
    @raise CommandError: credentials cannot be read.
    """
    if any(given[name] is not None for name in ("user", "password_file", "token_file")):
        secrets = ("user", "password-file", "token-file")
        kept = {name: value for name, value in kept.items() if name not in secrets}

    def choose(name: str) -> str | None:
        value: str | None = given[name.replace("-", "_")]
        return kept.get(name) if value is None else value

    options: dict[str, Any] = {
        "ca": choose("ca"),
        "certificate": choose("cert"),
        "certificateKey": choose("cert-key"),
        "group": choose("group"),
        "timeout": given["timeout"],
    }
    if "identity" in given:
        options["identities"] = choose("identity")
    user, passwordFile, tokenFile = map(choose, ("user", "password-file", "token-file"))
    if user is not None:
        options["user"] = user
        if passwordFile is not None:
            options["password"] = _readSecret(passwordFile)
        elif PASSWORD in environment:
            options["password"] = environment[PASSWORD]
        else:
            options["password"] = readPassword(f"Password of {user}: ")
    elif tokenFile is not None:
        options["token"] = _readSecret(tokenFile)
    elif passwordFile is not None:
        raise CommandError("--password-file needs --user")
    elif environment.get(TOKEN):
        options["token"] = environment[TOKEN]
    return options


def runReactor(work: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
    """
    Run a coroutine on the reactor, which a process can do once.

    @param work: is given the reactor.
    @return: what it returned; what it raised is raised.
    @raise KeyboardInterrupt: this process was interrupted before.
    """
    from twisted.internet.defer import Deferred
    from twisted.internet.task import react
    from twisted.python.failure import Failure

    outcomes: list[Any] = []

    def main(reactor: Any) -> Deferred[None]:
        return Deferred.fromCoroutine(work(reactor)).addBoth(outcomes.append)

    # It always ends so; what came of it is known by then.
    with suppress(SystemExit):
        react(main)
    for outcome in outcomes:
        if isinstance(outcome, Failure):
            outcome.raiseException()
        result: T = outcome
        return result
    raise KeyboardInterrupt


def askTerminal(question: str) -> str:
    """Ask for a password. Standard input is the command's own, such as the content to publish."""
    if not sys.stderr.isatty():
        raise CommandError(f"there is no password: give --password-file, or {PASSWORD}")
    return getpass(question)


def _readSecret(path: str) -> str:
    lines = readFile(path).decode("utf-8").splitlines()
    if not lines or not lines[0]:
        raise CommandError(f"{path}: there is nothing on its first line")
    return lines[0]


@makeCommand(
    f"""\
    The options that say which broker is asked, and with which credentials.

    Every command that asks a broker has them. Without any, the broker is that of {URL}, of the
    context in use, of a daemon on ./{DATA_DIR}, or at {DEFAULT_URL}.

    A password is in --password-file, in {PASSWORD}, or asked for on a terminal; a token is in
    --token-file or {TOKEN}. No option takes a secret itself: others on a machine see command
    lines.

    \b
    svcbroker topic list --url https://broker.example:8443/svcbroker --user ann
    svcbroker admin reload --data-dir /var/lib/svcbroker
    svcbroker admin context add mine --url https://broker.example:8443/svcbroker --user ann
    """
)
@options(*CONNECTION_OPTIONS)
def connectionPage(**given: Any) -> int:
    """Explain the options. It is shown, and not run."""
    raise NotImplementedError
