"""
The real daemon with accounts, asked by curl and by commands.
"""

from __future__ import annotations

import json
import re
import sys
from hashlib import sha256
from typing import Any

from svcbroker.access import hashPassword

from .daemon import TIMEOUT, Daemon
from .test_certificates import CertificatesTestCase

TOKEN = "svct_of_ann"

LARGE = 2_000_000
"""Bytes of a body that curl announces with C{Expect: 100-continue}."""


class CurlTests(CertificatesTestCase):
    """
    The accounts C{ann}, who may publish, C{op}, who may operate, and C{client}, who has a
    certificate and no password.
    """

    def setUp(self) -> None:
        super().setUp()
        token = sha256(TOKEN.encode()).hexdigest()
        self.file = self.root / "accounts.toml"
        self.file.write_text(
            f"""
            [accounts.ann]
            password = "{hashPassword(b"secret of ann")}"
            tokens = [{{ label = "x", sha256 = "{token}" }}]
            roles = ["orders"]
            [accounts.op]
            password = "{hashPassword(b"secret of op")}"
            roles = ["operator"]
            [accounts.client]
            certificate = "client"
            roles = ["orders"]
            [roles.orders]
            grants = ["open 1 orders/#", "publish 1 orders/#"]
            """
        )

    async def serve(self, **given: Any) -> Daemon:
        """A daemon with these accounts."""
        return await self.start("--access-log", f"--accounts={self.file}", **given)

    async def curl(self, *arguments: str) -> tuple[int, Any, str]:
        """The status of an answer, its JSON, and what curl says of the connection."""
        path = self.root / "answer"
        more = ("-sSv", "--max-time", str(TIMEOUT), "-o", str(path), "-w", "status=%{http_code}")
        code, text = await self.runCommand("curl", *more, *arguments)
        found = re.search("status=([0-9]+)", text)
        assert code == 0 and found is not None, text
        return int(found[1]), json.loads(path.read_bytes()), text

    async def test_passwordsAndTokensAreAccepted(self) -> None:
        daemon = await self.serve()
        for path, status, answer in (
            ("open?topic=orders/a", 200, True),
            ("publish?topic=orders/a&content=x", 200, "SUCCESS"),
            ("publish?topic=invoices/a&content=x", 403, 101016),
        ):
            for credentials in (
                ("-u", "ann:secret of ann"),
                ("-u", f"ann:{TOKEN}"),
                ("--anyauth", "-u", "ann:secret of ann"),
                ("--oauth2-bearer", TOKEN),
            ):
                found, said, _ = await self.curl(*credentials, f"{daemon.base}/rest/{path}")
                if isinstance(said, dict):
                    said = said.get("status", said.get("code"))
                self.assertEqual((found, said), (status, answer), (path, credentials))
        self.assertNotIn("secret", daemon.protocol.output)
        self.assertNotIn(TOKEN, daemon.protocol.output)

    async def test_bodyWithoutCredentialsIsNotSent(self) -> None:
        """curl waits to be asked for it, and never is."""
        daemon = await self.serve()
        body = self.root / "body"
        body.write_bytes(bytes(LARGE))
        send = ("-H", "Expect: 100-continue", "--data-binary", f"@{body}")
        for credentials in ((), ("-u", "ann:wrong"), ("--oauth2-bearer", "wrong")):
            status, said, text = await self.curl(*send, *credentials, f"{daemon.base}/jsonrpc")
            self.assertEqual((status, said["code"]), (401, 101015))
            self.assertNotIn("100 Continue", text)
        _, _, text = await self.curl(*send, "-u", "ann:secret of ann", f"{daemon.base}/jsonrpc")
        self.assertIn("100 Continue", text)

    async def test_certificateNeedsNoPassword(self) -> None:
        made = await self.make()
        daemon = await self.serve(http=made.endpoint())
        url = f"https://127.0.0.1:{await self.portOf(daemon, 'HTTP')}/svcbroker/rest/open?topic="
        trust = ("--cacert", *made.trust)
        own = made.identity("--cert", "--key")
        status, said, _ = await self.curl(*trust, *own, f"{url}orders/a")
        self.assertEqual((status, said), (200, True))
        status, said, _ = await self.curl(*trust, *own, f"{url}invoices/a")
        self.assertEqual((status, said["code"]), (403, 101016))
        status, said, _ = await self.curl(*trust, f"{url}orders/a")
        self.assertEqual((status, said["code"]), (401, 101015))

    async def test_commandsOperateADaemonAtAURL(self) -> None:
        daemon = await self.serve(ledger="pbft:nodes=4")
        for account, code, words in (("op", 0, "4 nodes"), ("ann", 1, "may not operate")):
            self.environment["SVCBROKER_PASSWORD"] = f"secret of {account}"
            process = self.spawn(
                *(sys.executable, "-m", "svcbroker.commands", "nodes", daemon.base),
                *("show", "--account", account),
            )
            self.assertEqual(await process.exits(), code)
            self.assertIn(words, process.protocol.output + process.protocol.errors)
