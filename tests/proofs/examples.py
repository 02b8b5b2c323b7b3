"""
The verifiers that the documentation shows. They have no line of the package in them.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature

from svcbroker.proofs import Checkpoint

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("svcbroker_example", EXAMPLES / "verify.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_example = _load()


def accepts(data: bytes, trusted: bytes | Checkpoint) -> bool:
    """
    Whether the example takes a proof. What it raises otherwise is what it says that it raises.

    @param trusted: a chain, or a checkpoint.
    """
    try:
        _example.verify(data, trusted.hex() if isinstance(trusted, bytes) else str(trusted))
    except (ValueError, InvalidSignature, RecursionError):
        return False
    return True
