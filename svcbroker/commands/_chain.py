"""
What the commands share that read a chain in a data directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..archive import Prover, groupDirectory, readChain
from ..chain import Malformed
from ..errors import BrokerError
from ..storage import StorageError
from ._command import CommandError
from ._options import CommandOptions


class ChainOptions(CommandOptions):
    """
    Options of a command that reads the chain of a group.
    """

    synopsis = "[options] DATA-DIR"
    optParameters: list[list[Any]] = [["group", None, "1", "The group whose chain is meant."]]

    def parseArgs(self, dataDir: str) -> None:  # type: ignore[override]
        """See C{usage.Options}."""
        self["data-dir"] = Path(dataDir)


@contextmanager
def openedChain(options: ChainOptions) -> Iterator[Prover]:
    """
    The chain that the options name, for as long as the context lasts.

    @raise CommandError: it cannot be read.
    """
    directory = groupDirectory(options["data-dir"], options["group"])
    try:
        with readChain(directory) as prover:
            yield prover
    except StorageError as error:
        raise CommandError(str(error)) from None
    except Malformed as error:
        raise CommandError(f"{directory} is damaged ({error}): svcbroker audit says more") from None
    except BrokerError as error:
        raise CommandError(error.message) from None
