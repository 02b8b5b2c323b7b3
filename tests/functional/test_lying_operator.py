"""
The page about an operator who lies: each of its commands is run, and has to print what it shows.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import treq
from msgspec.json import encode
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site

from svcbroker.archive import exportPart
from svcbroker.broker.transparency import LOG_TOPIC
from svcbroker.proofs.tlog import NoteSignature, VerifierKey, WitnessKey
from tests.proofs.witness.lying import ChainLog, LyingChain

from .daemon import LOCAL, STEP, TIMEOUT, Daemon, DaemonTestCase, reactor

PAGE = Path(__file__).parents[2] / "docs" / "threat-model.rst"
URL = "https://broker.example/svcbroker"
PLAIN = {name: WitnessKey(f"{name}.example", name[:1].encode() * 32) for name in ("alpha", "beta")}
TIME = 1_800_000_000


def steps() -> list[tuple[str, list[str]]]:
    """The commands of the page, and the lines that it shows of what each prints."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(
        r"^\.\. code-block:: console\n\n((?: {3}.*\n|\n)+)", PAGE.read_text("utf-8"), re.MULTILINE
    ):
        for line in block.splitlines():
            text = line.strip()
            if text.startswith("$ "):
                found.append((text.removeprefix("$ "), []))
            elif text:
                found[-1][1].append(text)
    return found


class Original(Resource):
    """The broker of the operator, as copies see it."""

    isLeaf = True

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory

    def render_GET(self, request: Any) -> int:
        """The next blocks, or none after a moment."""
        part = exportPart(self._directory, int(request.args[b"from"][0]))

        def answer(_: object) -> None:
            request.setHeader("Svcbroker-Height", str(part.height))
            request.setHeader("Svcbroker-Tip", str(part.tip))
            request.write(part.stream)
            request.finish()

        isNew = part.last >= int(request.args[b"from"][0])
        waiting: Deferred[None] = deferLater(reactor, 0 if isNew else STEP)
        request.notifyFinish().addErrback(lambda _: waiting.cancel())
        waiting.addCallbacks(answer, lambda _: None)
        return NOT_DONE_YET


class LyingTests(DaemonTestCase):
    """
    The operator's files, two honest witnesses, and one that executes.
    """

    def setUp(self) -> None:
        super().setUp()
        directory = self.root / "data" / "1"
        directory.mkdir(parents=True)
        self.chain = LyingChain(directory)
        self.addCleanup(self.chain.close)
        self.log = ChainLog(self.chain, f"svcbroker/{self.chain.genesis.chain.hex()}")
        key = self.log.key.verifier
        self.chain.open("payments", LOG_TOPIC)
        record = f'{{"origin":"{key.name}","key":"{key.text}"}}'
        self.chain.publish(LOG_TOPIC, record.encode())
        (self.ann,) = self.chain.publish("payments", b"pay Ann")
        port = reactor.listenTCP(0, Site(Original(directory)), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        self.url = f"http://127.0.0.1:{port.getHost().port}/svcbroker"
        program = self.root / "bin" / "svcbroker"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {self.python()} -m svcbroker.commands "$@"\n')
        program.chmod(0o755)
        self.environment["PATH"] = f"{program.parent}:{self.environment['PATH']}"

    async def post(self, witness: Daemon, older: int, newer: int) -> tuple[int, str]:
        """Ask the witness that executes for a cosignature; ask again while it says so."""
        while True:
            answer = await treq.post(
                f"{witness.base}/add-checkpoint",
                data=self.log.request(older, newer).encode(),
                pool=witness.pool,
                timeout=TIMEOUT,
            )
            text = (await answer.content()).decode()
            # Before the certification is executed, the log is unknown to it.
            if answer.code not in (404, 503):
                return answer.code, text
            await deferLater(reactor, STEP)

    def proof(self, index: int, size: int, proof: object, *more: NoteSignature) -> bytes:
        """A proof in the log, in a checkpoint that both honest witnesses have cosigned."""
        text = self.log.head(size).text
        cosigned = [each.cosign(text, TIME) for each in PLAIN.values()]
        return self.log.proof(index, size, encode(proof), *cosigned, *more)

    async def lie(self) -> None:
        """Make the files of the page."""
        words = ["witness", "run", "witness", "--name=partner.example/witness", "--copy=copied"]
        witness = self.spawn(
            sys.executable,
            "-m",
            "svcbroker.commands",
            *words,
            f"--from={self.url}",
            f"--listen={LOCAL}",
        )
        found = await witness.protocol.waitFor(r"Witness (\S+) on (127\.0\.0\.1:[0-9]+)")
        partner = VerifierKey.parse(found[1])
        witness.base = f"http://{found[2]}"
        code, line = await self.post(witness, 0, 4)
        self.assertEqual(code, 200, line)
        executed = NoteSignature.parse(line.splitlines()[0])
        bob = self.chain.lie("payments", b"pay Bob", 1)
        code, text = await self.post(witness, 4, 5)
        self.assertEqual(code, 422, text)
        await witness.stop()

        prover, prove = self.chain.prover, self.chain.prover.event
        topic = prover.certified(prover.topic("payments", self.chain.state))
        lines = [f"log {self.log.key.verifier.text}"]
        lines += [f"witness {name} {each.verifier.text}" for name, each in PLAIN.items()]
        for name, data in {
            "genesis.json": encode(prover.genesis()),
            "ann.json": encode(prove(self.ann)),
            "bob.json": encode(prove(bob)),
            "ann-trusted.json": encode(prove(self.ann, None, trusted=4)),
            "ann.tlog-proof": self.proof(3, 4, prove(self.ann, None, trusted=3), executed),
            "bob.tlog-proof": self.proof(4, 5, prove(bob, None, trusted=4)),
            "topic.tlog-proof": self.proof(4, 5, topic),
            "policy": "\n".join([*lines, "group both all alpha beta", "quorum both\n"]).encode(),
            "executed": "\n".join(
                [*lines, f"witness partner {partner.text}", "quorum partner\n"]
            ).encode(),
        }.items():
            (self.root / name).write_bytes(data)

    def test_pageIsTrue(self) -> Deferred[None]:
        """Each command prints the lines that the page shows, and has the exit code it tells."""

        async def run() -> None:
            await self.lie()
            codes = []
            for command, lines in steps():
                typed = command.replace(URL, self.url)
                running = self.spawn("/bin/sh", "-c", typed)
                codes.append(await running.exits())
                output = running.protocol.output + running.protocol.errors
                printed = [" ".join(each.split()) for each in output.splitlines()]
                for line in lines:
                    pieces = [" ".join(each.split()) for each in line.split("…")]
                    pattern = re.compile(".*".join(map(re.escape, pieces)))
                    self.assertTrue(any(map(pattern.search, printed)), (command, line, output))
            self.assertEqual(codes, [0, 0, 0, 0, 1, 0, 1, 1, 1, 0, 0])

        return Deferred.fromCoroutine(run())
