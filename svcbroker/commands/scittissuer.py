"""
C{svcbroker proof scitt issuer}: fetches the keys of an issuer that is named by C{did:web}, once,
for the policy of a service.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from attrs import define

from ..files import parseToml, readFile, replaceFile, writeNew
from ..net.endpoints import AddressPolicy
from ..net.http import CertificatePolicy, HttpClient, HttpError, makeClient, readBody
from ..net.pem import CertificateError
from ..net.settings import ConfigError
from ..proofs import ProofInvalid
from .arguments import FILE, PATH, Decimal, jsonOption, makeCommand, options
from .clientcommand import runReactor
from .prooftext import factLine
from .scittverify import importScitt
from .terminal import CommandError, Console, Exit, showRecord

if TYPE_CHECKING:
    from ..proofs.scitt import DidKeys

TIMEOUT: Final = 10.0
MAX_DOCUMENT: Final = 64 * 1024
"""The most bytes of a document."""


@makeCommand(
    """\
    Fetch the keys of an issuer that is named by did:web, for the policy of a service.

    ISSUER is such as did:web:acme.example: its document is at
    https://acme.example/.well-known/did.json, and the keys are those by which it asserts
    (assertionMethod), of Ed25519, P-256 or P-384. Statements may call a key by the fragment of its
    name or by all of it.

    What is written to --output is a COSE_KeySet, for "keys" in the policy; with --policy, the
    issuer is added to that file, which svcbroker admin reload puts in force. Nothing is fetched
    later: fetch again into another file when the issuer has changed its keys, and replace the old
    one. Whoever controls the web server at this time decides which keys these are: compare them
    with what the issuer tells you.

    Addresses that are not public are refused unless --allow names them, and redirects are not
    followed. The web server's certificate has to be of an authority that the system trusts, or of
    one in --ca.

    Exit codes: 0 written, 1 no such document or key, 2 wrong usage.
    """
)
@options(
    click.argument("issuer"),
    click.option(
        "--output", type=PATH, metavar="FILE", required=True, help="The new file for the keys."
    ),
    click.option(
        "--policy", type=FILE, metavar="FILE", help="The policy that the issuer is added to."
    ),
    click.option(
        "--allow",
        metavar="NETWORK|HOST",
        multiple=True,
        help="Addresses or a host that may be asked, too. May come again.",
    ),
    click.option(
        "--ca", type=FILE, metavar="FILE", help="The authorities of the web server's certificate."
    ),
    click.option(
        "--timeout",
        type=Decimal(min=0, min_open=True, max=600),
        default=TIMEOUT,
        show_default=True,
        metavar="SECONDS",
        help="How long the answer may take.",
    ),
    jsonOption("Tell what was found in JSON."),
)
def command(
    console: Console,
    issuer: str,
    output: Path,
    policy: Path | None,
    allow: tuple[str, ...],
    ca: Path | None,
    timeout: float,
    asJson: bool,
) -> int:
    """Fetch the keys, and write them."""
    scitt = importScitt()
    try:
        url = scitt.documentUrl(issuer)
        allowed = AddressPolicy.allowing(allow)
    except ProofInvalid as error:
        raise CommandError(f"ISSUER: {error}") from None
    except ValueError as error:
        raise CommandError(f"--allow {error}") from None
    try:
        tls = CertificatePolicy.load(None, ca)
    except (CertificateError, OSError) as error:
        raise CommandError(f"--ca: {error}") from None
    added = None if policy is None else _PolicyWith.read(policy, issuer, output)
    if output.exists():
        raise CommandError(f"--output: {output} is there already")
    try:
        data = runReactor(lambda reactor: _fetch(reactor, url, allowed, tls, timeout))
        found = scitt.keysInDocument(issuer, data)
    except (HttpError, ProofInvalid) as error:
        raise CommandError(f"{url}: {error}", Exit.BAD) from None
    writeNew(output, scitt.encodeKeys(found.keys), 0o644)
    if added is not None:
        added.write()
    _show(console, issuer, url, found, asJson)
    return Exit.GOOD


def _show(console: Console, issuer: str, url: str, found: DidKeys, asJson: bool) -> None:
    """Tell what was found."""
    thumbprints = {each.kid.decode(): each.thumbprint.hex() for each in found.keys}
    fields = {"issuer": issuer, "url": url, "keys": thumbprints, "leftOut": [*found.leftOut]}
    lines = [factLine("issuer", issuer), factLine("document", url)]
    lines += [factLine("key", f"{name}, {digits}") for name, digits in thumbprints.items()]
    lines += [factLine("left out", f"{name}, of another kind") for name in found.leftOut]
    showRecord(console, fields, lines, asJson)


@define
class _PolicyWith:
    """
    A policy with one issuer more.
    """

    path: Path
    text: str

    @classmethod
    def read(cls, path: Path, issuer: str, keys: Path) -> _PolicyWith:
        """
        Read a policy.

        @param keys: the file with the issuer's keys, which is not there yet.
        @raise CommandError: it is none, or has the issuer already.
        """
        data = readFile(path)
        try:
            issuers = parseToml(data).get("issuers", [])
            names = {each.get("issuer") for each in issuers}
        except (ValueError, AttributeError, TypeError):
            raise CommandError(f"--policy: {path} is no policy in TOML") from None
        if issuer in names:
            raise CommandError(
                f"--policy: {path} has {issuer} already: leave --policy out, and change its keys "
                "in the file"
            )
        # A text of JSON in ASCII is one of TOML.
        place = json.dumps(os.path.relpath(keys, path.parent))
        text = data.decode("utf-8").rstrip("\n")
        return cls(path, f"{text}\n\n[[issuers]]\nissuer = {json.dumps(issuer)}\nkeys = {place}\n")

    def write(self) -> None:
        """
        Replace the file.

        @raise CommandError: the service would not read it.
        """
        from ..carriers.scitt.policyfile import readPolicy

        try:
            replaceFile(
                self.path,
                self.text.encode("utf-8"),
                lambda made: readPolicy("--policy", str(made)),
            )
        except ConfigError as error:
            raise CommandError(f"the keys are written, and {error}") from None


async def _fetch(
    reactor: Any, url: str, allowed: AddressPolicy, tls: CertificatePolicy, timeout: float
) -> bytes:
    """See L{fetchDocument}."""
    client = makeClient(reactor, maxBody=MAX_DOCUMENT, tls=tls, policy=allowed)
    try:
        return await fetchDocument(client, url, timeout)
    finally:
        await client.close()


async def fetchDocument(client: HttpClient, url: str, timeout: float) -> bytes:
    """
    Fetch a document.

    @param timeout: how long it may take, in seconds.
    @raise HttpError: there is no answer.
    @raise ProofInvalid: the answer is another one.
    """
    answer = await client.request("GET", url, timeout=timeout, maxBody=MAX_DOCUMENT)
    body = await readBody(answer)
    if answer.code != 200:
        raise ProofInvalid(f"the answer has the status {answer.code}, and no document")
    return body
