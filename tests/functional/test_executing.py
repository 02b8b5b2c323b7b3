"""
The page of witnesses that execute, as a partner types it: from nothing to an event that was
executed.
"""

from __future__ import annotations

import re
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from svcbroker.proofs.tlog import VerifierKey

from .daemon import AGAIN, TIMEOUT, Daemon, DaemonTestCase, reactor

PAGE = Path(__file__).parents[2] / "docs" / "transparency.rst"
URL = "https://broker.example/svcbroker"
OPERATOR = "ops"


def typed() -> list[str]:
    """The commands of the page's section."""
    text = PAGE.read_text("utf-8").partition(".. _witness-executing:")[2]
    return re.findall(r"^   \$ (.*)$", text.partition("\nWhat it finds wrong")[0], re.MULTILINE)


class PartnerTests(DaemonTestCase):
    """
    A partner's machine, and a broker with accounts.
    """

    def setUp(self) -> None:
        super().setUp()
        program = self.root / "venv" / "bin" / "svcbroker"
        program.parent.mkdir(parents=True)
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m svcbroker.commands "$@"\n')
        program.chmod(0o755)
        self.words: dict[str, str] = {}

    def type(self, command: str) -> Daemon:
        """Start a command of the page."""
        for word, value in self.words.items():
            command = command.replace(word, value)
        return self.spawn("/bin/sh", "-c", f"exec {command}")

    async def done(self, command: str) -> str:
        """The output of a command of the page, which ends with 0."""
        running = self.type(command)
        code = await running.exits()
        self.assertEqual(code, 0, running.protocol.errors)
        return running.protocol.output

    async def accounts(self) -> str:
        """Make the accounts; the operator's token."""
        grants = re.search(r"^    \[roles.witness\]\n    (grants = .*)$", PAGE.read_text(), re.M)
        assert grants is not None
        (self.root / "accounts.toml").write_text(
            f'[roles.witness]\n{grants[1]}\n[roles.{OPERATOR}]\ngrants = ["* * #", "* * $svc/#"]\n'
        )
        (self.root / "partner.password").write_text("a password of a partner\n")
        where = "--accounts=accounts.toml"
        for words, stdin in (
            (("add", "partner", where, "--role=witness"), b"a password of a partner\n"),
            (("add", OPERATOR, where, "--no-password", f"--role={OPERATOR}"), b""),
            (("token", OPERATOR, where), b""),
        ):
            code, output, errors = await self.outcomeOf("account", *words, stdin=stdin)
            self.assertEqual(code, 0, errors)
        return output.strip()

    def log(self) -> str:
        """What the witness has said."""
        return self.witness.protocol.output + self.witness.protocol.errors

    async def until(self, ask: Any, isSo: Any) -> Any:
        """Ask until the answer is as a test waits for."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            answer = await ask()
            if isSo(answer):
                return answer
            self.assertLess(time.monotonic(), deadline, (answer, self.log()))
            await deferLater(reactor, 0.1)

    def test_partnerGetsFromNothingToAnExecutedEvent(self) -> Deferred[None]:
        """
        Five commands. The witness goes on after a kill, and after its copy was lost.
        """

        async def run() -> None:
            install, witness, listed, prove, verify = typed()
            self.assertEqual(install, "python3 -m venv venv && venv/bin/pip install svcbroker")
            token = await self.accounts()
            headers: Any = {"Authorization": f"Bearer {token}"}
            arguments = [f"--accounts={self.root}/accounts.toml", "--witness-interval=0.2"]
            daemon = await self.start(*arguments, ledger="pbft", http=AGAIN)
            where = daemon.base.removeprefix("http://").partition("/")[0]
            await daemon.call("/rest/open", topic="t", headers=headers)
            event = await daemon.call("/rest/publish", topic="t", content="x", headers=headers)
            genesis = await daemon.call("/rest/genesis", headers=headers)
            self.words = {
                URL: daemon.base,
                re.findall(r"--genesis (\w+)", witness)[0]: genesis["chain"],
                re.findall(r"prove (\S+)", prove)[0]: event["eventId"],
            }
            self.witness = running = self.type(f"{witness} --listen {AGAIN}")
            found = await running.protocol.waitFor(r"Witness (\S+) on (127\.0\.0\.2:[0-9]+)")
            key = VerifierKey.parse(found[1])
            self.assertEqual(key.name, "partner.example/witness/executed")
            await running.protocol.waitFor("the copy is up to date")

            lines = f"witness partner {key.text} http://{found[2]}\nquorum partner\n"
            (self.root / "witnesses").write_text(lines)
            await daemon.stop()
            arguments.append(f"--witness-policy={self.root}/witnesses")
            endpoint = f"tcp:{where.partition(':')[2]}:interface=127.0.0.2"
            daemon = await self.start(*arguments, ledger="pbft", http=endpoint)
            log = (await running.protocol.waitFor("certifies the key of the log (\\S+)"))[1]

            async def ask() -> Any:
                return await daemon.call("/rest/witnesses", headers=headers)

            told = await self.until(ask, lambda each: each["cosigned"] == each["size"])
            output = await self.done(listed)
            self.assertEqual(output.splitlines()[0], f"witness {key.text}")
            self.assertIn(f": size {told['size']}, cosigned ", output)
            (self.root / "policy").write_text(f"log {log}\n{lines}")
            await self.done(prove)
            output = await self.done(verify)
            self.assertIn("PROVED: it is in a log that the policy accepts.", output)
            self.assertRegex(output, r"executed by +1 of 1: partner")

            await running.stop(signal.SIGKILL)
            shutil.rmtree(self.root / "copy")
            port = found[2].partition(":")[2]
            self.witness = again = self.type(f"{witness} --listen tcp:{port}:interface=127.0.0.2")
            await again.protocol.waitFor("Witness ")
            await daemon.call("/rest/publish", topic="t", content="y", headers=headers)
            await self.until(ask, lambda each: each["cosigned"] == each["size"] == told["size"] + 1)
            self.assertEqual(await again.stop(), 0)
            # What is there needs no name and no URL. It is executed again before it is used.
            words = "venv/bin/svcbroker net witness run ./witness --copy ./copy --user partner"
            listen = f"--password-file partner.password --listen tcp:{port}:interface=127.0.0.2"
            self.witness = last = self.type(f"{words} {listen}")
            await last.protocol.waitFor("The copy is executed up to block")
            await daemon.call("/rest/publish", topic="t", content="z", headers=headers)
            await self.until(ask, lambda each: each["cosigned"] == each["size"] == told["size"] + 2)
            self.assertEqual(await last.stop(), 0)
            await daemon.stop()

        return Deferred.fromCoroutine(run())

    async def test_keyAndCopyBelongTogether(self) -> None:
        """A key that executes is not used without a copy, nor another key with one."""
        log = "--log=x.example+530d903a+AekyeRrm"
        for arguments, text in (
            (["run", "w", "--copy=c", "--name=w"], "--from: c has no copy yet"),
            (["run", "w", "--from=http://127.0.0.1/svcbroker", log], "--log: "),
            (["run", "w", "--copy=c", "--from=ftp://x", "--name=w"], "url: "),
        ):
            code, output, errors = await self.outcomeOf("witness", *arguments)
            self.assertEqual((code, output), (2, ""))
            self.assertIn(text, errors)
            self.assertEqual(errors.count("\n"), 1, errors)
