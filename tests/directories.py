"""
Directories for tests.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import mkdtemp

from twisted.trial.unittest import SynchronousTestCase


def shortDirectory(test: SynchronousTestCase) -> Path:
    """
    Make a directory in which there is room for UNIX sockets: the path of one has at most 107
    bytes, and C{mktemp} lies in the checkout, however deep that is. It is directly below the
    system's directory for temporary files, and is removed when the test has ended.
    """
    path = Path(mkdtemp(prefix="svc-"))
    # An engine that was just killed may not be gone yet, and write still.
    test.addCleanup(shutil.rmtree, path, ignore_errors=True)
    return path
