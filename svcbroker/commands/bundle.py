"""
C{svcbroker bundle}: the proofs of events in one file, for somebody who has no broker.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from ._arguments import options
from ._command import CommandError, Console, Exit
from ._connection import clientCommand
from ._words import counted

if TYPE_CHECKING:
    from ..client import Client


@clientCommand(
    """\
    Put the proofs of events into one file, with a page that verifies them without a network.

    Each event is proved to be in the log, and seen by the witnesses of the policy. The file is a
    ZIP archive for a court, an auditor or a partner: README.txt in it says how it is checked.
    Without events, their ids are read from standard input.

    \b
    svcbroker bundle 7ba3f518-1-12 7ba3f518-2-13 --policy policy > case.zip
    svcbroker verify case.zip --policy policy
    """
)
@options(
    click.argument("events", metavar="[EVENT]...", nargs=-1),
    click.option(
        "--policy",
        "policyPath",
        metavar="FILE",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Whose signatures are wanted; it is put into the file. [default: the log's key alone]",
    ),
    click.option("--output", metavar="FILE", help="Where to write it. [default: standard output]"),
)
def command(
    console: Console,
    client: Client,
    events: tuple[str, ...],
    policyPath: Path | None,
    output: str | None,
) -> int:
    """Write a bundle."""
    from ..bundle import Bundle
    from ..proofs import ProofInvalid
    from ..tlog import Policy
    from ._policies import readPolicy

    ids = list(dict.fromkeys(events or sys.stdin.read().split()))
    if not ids:
        raise CommandError("which events? give their ids")
    if output is None and console.output.isatty():
        raise CommandError("give --output, or send standard output to a file")
    if policyPath is None:
        key = json.loads(client.readLog("keys"))["key"]
        policyText = f"log {key}\nquorum none\n".encode()
        policy = Policy.parse(policyText)
        console.warn("no witness is asked for: give --policy with those that the reader trusts")
    else:
        policy, policyText = readPolicy(policyPath), policyPath.read_bytes()
    proofs = {each: client.readLog(f"proof?eventId={quote(each, safe='')}") for each in ids}
    bundle = Bundle(proofs=proofs, policy=policyText)
    try:
        bundle.verify(policy)
    except ProofInvalid as error:
        raise CommandError(str(error), Exit.BAD) from None
    data = bundle.encode()
    if output is None:
        console.output.buffer.write(data)
    else:
        Path(output).write_bytes(data)
    console.warn(f"{counted(len(ids), 'event')}, {counted(len(data), 'byte')}")
    return Exit.GOOD
