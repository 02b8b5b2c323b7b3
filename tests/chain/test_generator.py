"""
The script that writes the vectors, in processes of its own.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from .reference import VECTORS_PATH

ROOT = VECTORS_PATH.parents[2]


class GeneratorTests(SynchronousTestCase):
    """
    C{tools/vectors/chain.py}.
    """

    def test_scriptReproducesCommittedFile(self) -> None:
        """
        Under a hash seed that is drawn the script makes the committed file, byte for byte: blocks,
        hashes and signatures depend on nothing but what is in them.
        """
        seed = str(random.SystemRandom().randrange(2**32))
        path = Path(self.mktemp()).absolute()
        subprocess.run(
            [sys.executable, "-m", "tools.vectors.chain", str(path)],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
        )
        self.assertTrue(path.read_bytes() == VECTORS_PATH.read_bytes(), f"hash seed {seed}")
