"""
What the commands share that read a chain in a data directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from ..archive import Prover, groupDirectory, readChain
from ..chain import Malformed
from ..errors import BrokerError
from ..storage import StorageError
from ._arguments import DATA_DIR
from ._command import CommandError

CHAIN_OPTIONS: Final = (
    DATA_DIR,
    click.option(
        "--group",
        default="1",
        show_default=True,
        metavar="ID",
        help="The group whose chain is meant.",
    ),
)
"""Options of a command that reads the chain of a group."""


@contextmanager
def openedChain(dataDir: Path, group: str) -> Iterator[Prover]:
    """
    The chain of a group, for as long as the context lasts.

    @raise CommandError: it cannot be read.
    """
    directory = groupDirectory(dataDir, group)
    try:
        with readChain(directory) as prover:
            yield prover
    except StorageError as error:
        raise CommandError(str(error)) from None
    except Malformed as error:
        raise CommandError(f"{directory} is damaged ({error}): svcbroker audit says more") from None
    except BrokerError as error:
        raise CommandError(error.message) from None
