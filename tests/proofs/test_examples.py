"""
The verifier of the documentation and ours say the same of every proof.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.proofs import Checkpoint, ProofInvalid, verifyProof, verifyTopic
from tests.waiting import TIMEOUT
from tools.vectors.enginechain import EngineChain

from .authored import Authored, authored
from .examples import EXAMPLES, accepts
from .mutations import mutations
from .support import Proofs, proofs
from .test_tampering import written


class AgreementTests(SynchronousTestCase):
    """
    C{docs/examples/verify.py}.
    """

    def agree(
        self,
        data: bytes,
        trusted: bytes | Checkpoint,
        ours: Callable[[bytes], object],
        seed: random.Random,
        count: int,
    ) -> None:
        """Both take a proof, and say the same of some changes of it."""
        ours(data)
        self.assertTrue(accepts(data, trusted))
        for what, changed in seed.sample(list(mutations(json.loads(data))), count):
            text = written(changed)
            try:
                ours(text)
                isGood = True
            except ProofInvalid:
                isGood = False
            self.assertEqual(accepts(text, trusted), isGood, what)

    def agreeOnEvents(self, made: Proofs, count: int) -> None:
        """Both say the same of all event proofs, and none is of another chain."""
        seed, chain = random.Random(4), made.genesis.chain
        for name, data in made.events.items():
            self.assertFalse(accepts(data, bytes(32)), name)
            self.agree(data, chain, partial(verifyProof, chain=chain), seed, count)

    def test_eventProofsAgree(self) -> None:
        """It refuses what ours refuses, of a large sample of changes."""
        self.agreeOnEvents(proofs(), 300)

    def test_engineProofsAgree(self) -> None:
        """Both say the same of proofs of a chain that an engine decided."""
        self.agreeOnEvents(proofs(EngineChain), 100)

    def test_unsignedAndTopicProofsAgree(self) -> None:
        """Both say the same of proofs without signatures, and of topic proofs."""
        made, seed = proofs(), random.Random(5)
        chain, tip = made.genesis.chain, made.checkpoints[max(made.checkpoints)]
        for data in made.unsigned.values():
            self.agree(data, tip, partial(verifyProof, checkpoint=tip), seed, 500)
        for data in made.topics.values():
            self.agree(data, chain, partial(verifyTopic, chain=chain), seed, 500)

    def test_authoredProofsAgree(self) -> None:
        """Both say the same of proofs of events of version 2, with and without content."""
        self.agreeOnAuthored(authored(), 300)

    def test_authoredEngineProofsAgree(self) -> None:
        """The same of a chain that an engine decided."""
        self.agreeOnAuthored(authored(EngineChain), 50)

    def agreeOnAuthored(self, made: Authored, count: int) -> None:
        """Both take all proofs of a chain, and say the same of some changes of a few of them."""
        seed, chain = random.Random(6), made.genesis.chain
        for data in (*made.events.values(), *made.erased.values(), *made.topics.values()):
            self.assertTrue(accepts(data, chain))
        for data in (
            *(made.events[name] for name in ("all", "key")),
            *(made.erased[name] for name in ("all", "of version 1")),
        ):
            self.agree(data, chain, partial(verifyProof, chain=chain), seed, count)
        verify = partial(verifyTopic, chain=chain)
        self.agree(made.topics["signed"], chain, verify, seed, count)

    def test_exampleRunsAsScript(self) -> None:
        """As a script it says what came of it, and imports nothing of ours."""
        made = proofs()
        path = Path(self.mktemp())
        path.write_bytes(made.events["binary, after a change of nodes"])
        for chain, code, word in (
            (made.genesis.chain, 0, "PROVED: "),
            (bytes(32), 1, "NOT PROVED: "),
        ):
            done = subprocess.run(
                [sys.executable, "-S", "-c", _RUN, str(EXAMPLES / "verify.py"), str(path)],
                input=chain.hex(),
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
            )
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertTrue((done.stdout + done.stderr).startswith(word), done.stderr)


_RUN = """
import sys
sys.path[:0] = {paths!r}
sys.modules["svcbroker"] = None
sys.argv = [*sys.argv[1:], sys.stdin.read()]
exec(compile(open(sys.argv[0]).read(), sys.argv[0], "exec"), {{"__name__": "__main__"}})
""".format(paths=[path for path in sys.path if path.endswith("site-packages")])
