"""
The way to operate a daemon from its machine, as its data directory tells. Commands import it, so it
does without Twisted.

A module of its own: commands start without Twisted.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from attrs import field, frozen

from ..files import readFile

OPERATOR_NAME: Final = "operator.json"
_MAX_SIZE = 64 * 1024


class OperatorFileError(Exception):
    """
    The file cannot be used. The text is one line for the operator.
    """


@frozen
class Operating:
    """
    The address of a daemon, and the token of its operators.

    @ivar url: its base address, context path included.
    @ivar token: what an operator has to show.
    """

    url: str
    token: str = field(repr=False)


def readOperatorFile(directory: Path) -> Operating:
    """
    Read the address and the operators' token of a data directory's daemon.

    @raise OperatorFileError: there is no such file, or it cannot be read.
    """
    path = directory / OPERATOR_NAME
    try:
        value = json.loads(readFile(path, _MAX_SIZE))
        return Operating(str(value["url"]), str(value["token"]))
    except FileNotFoundError:
        raise OperatorFileError(
            f"no daemon that can be operated runs on {directory}: it has no {OPERATOR_NAME}"
        ) from None
    except OSError as error:
        raise OperatorFileError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, LookupError, TypeError, RecursionError):
        raise OperatorFileError(f"{path} is not what a daemon has written") from None
