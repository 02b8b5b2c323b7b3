"""
What the commands share that use a broker as a client: where it is, and the credentials.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..errors import BrokerError, TopicNotFound
from ._command import CommandError, Console, Exit
from ._contexts import Contexts, contextsPath

if TYPE_CHECKING:
    from ..client import Client

DEFAULT_URL: Final = "http://127.0.0.1:8080/svcbroker"
"""Where a broker is that was started without options."""

URL: Final = "SVCBROKER_URL"
PASSWORD: Final = "SVCBROKER_PASSWORD"
TOKEN: Final = "SVCBROKER_TOKEN"
"""Environment variables: the broker's URL, the password of C{--user}, a token."""

FIELD_OPTIONS: Final = (
    click.option("--user", metavar="NAME", help=f"An account; its password is in {PASSWORD}."),
    click.option("--password-file", metavar="FILE", help="A file with the account's password."),
    click.option("--token-file", metavar="FILE", help=f"A file with a token, or give {TOKEN}."),
    click.option("--ca", metavar="FILE", help="The authorities of the broker's certificate."),
    click.option("--cert", metavar="FILE", help="The client's certificate."),
    click.option("--cert-key", metavar="FILE", help="The key of the certificate."),
    click.option("--group", metavar="ID", help="The group. [default: the broker's]"),
)
"""What a context can keep beside the URL."""

_OPTIONS: Final = (
    click.option(
        "--url",
        metavar="URL",
        multiple=True,
        help=f"The broker's URL; several are brokers of one network. [default: {URL}, the "
        f"context in use, or {DEFAULT_URL}]",
    ),
    click.option("--context", metavar="NAME", help="The context to use, instead of --url."),
    *FIELD_OPTIONS,
    click.option(
        "--timeout",
        type=click.FloatRange(min=0, max=86400),
        default=30.0,
        show_default=True,
        metavar="SECONDS",
        help="How long a call may take with all its attempts.",
    ),
)
_NAMES: Final = (
    *("url", "context", "user", "password_file", "token_file", "ca", "cert", "cert_key"),
    *("group", "timeout"),
)


def clientCommand(summary: str) -> Callable[[Callable[..., int]], click.Command]:
    """
    Make a command of a function that is called with the console, a
    L{Client<svcbroker.client.Client>} and the parameters of the command, and returns the exit
    code.

    @param summary: the help text.
    """

    def decorate(function: Callable[..., int]) -> click.Command:
        @wraps(function)
        def call(**given: Any) -> int:
            console = click.get_current_context().find_object(Console)
            connection = {name: given.pop(name) for name in _NAMES}
            with connected(connection, os.environ) as client:
                return function(console, client, **given)

        wrapped: Any = call
        for option in reversed(_OPTIONS):
            wrapped = option(wrapped)
        made: click.Command = click.command(help=summary, options_metavar="[options]")(wrapped)
        return made

    return decorate


@contextmanager
def connected(given: Mapping[str, Any], environment: Mapping[str, str]) -> Iterator[Client]:
    """
    A client, for as long as the context lasts.

    @param given: the options of the command line.
    @raise CommandError: the options are wrong, the broker refuses a call, or there is none.
    """
    from ..client import Client, NotVerified, Unreachable

    urls, options = settingsOf(given, environment)
    try:
        client = Client(*urls, **options)
    except ValueError as error:
        raise CommandError(str(error)) from None
    try:
        with client:
            yield client
    except TopicNotFound as error:
        raise CommandError(f"{error.message}; see: svcbroker topic open", Exit.BAD) from None
    except Unreachable as error:
        raise CommandError(f"{error.message}, at {' or '.join(urls)}") from None
    except NotVerified as error:
        raise CommandError(error.message, Exit.BAD) from None
    except BrokerError as error:
        raise CommandError(
            f"the broker refused ({error.code}): {error.message}", Exit.BAD
        ) from None


def settingsOf(
    given: Mapping[str, Any], environment: Mapping[str, str]
) -> tuple[list[str], dict[str, Any]]:
    """
    Where the broker is, and the options of a client.

    A context is not used beside a URL, so that its credentials are not sent elsewhere.

    @raise CommandError: credentials cannot be read, or there is no such context.
    """
    kept: Mapping[str, str] = {}
    urls = list(given["url"])
    if urls and given["context"] is not None:
        raise CommandError("give --url or --context, not both")
    if not urls and given["context"] is None and environment.get(URL):
        urls = [environment[URL]]
    if not urls:
        contexts = Contexts.read(contextsPath(environment))
        name = given["context"] or contexts.current
        kept = {} if name is None else contexts.find(name)
        urls = [kept.get("url", DEFAULT_URL)]
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
    user, passwordFile, tokenFile = map(choose, ("user", "password-file", "token-file"))
    if user is not None:
        options["user"] = user
        options["password"] = _password(user, passwordFile, environment)
    elif tokenFile is not None:
        options["token"] = _readSecret(tokenFile)
    elif passwordFile is not None:
        raise CommandError("--password-file needs --user")
    elif environment.get(TOKEN):
        options["token"] = environment[TOKEN]
    return urls, options


def _password(user: str, path: str | None, environment: Mapping[str, str]) -> str:
    if path is not None:
        return _readSecret(path)
    if PASSWORD in environment:
        return environment[PASSWORD]
    if not sys.stderr.isatty():
        raise CommandError(f"there is no password: give --password-file, or {PASSWORD}")
    return getpass(f"Password of {user}: ")


def _readSecret(path: str) -> str:
    lines = Path(path).read_text("utf-8").splitlines()
    if not lines or not lines[0]:
        raise CommandError(f"{path}: there is nothing on its first line")
    return lines[0]
