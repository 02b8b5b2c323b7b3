"""
The authenticator that the documentation shows how to write, chosen by its name on a real daemon.
"""

from __future__ import annotations

import shutil
import sqlite3
from base64 import b64encode
from contextlib import closing
from hashlib import scrypt
from pathlib import Path

from .daemon import DaemonTestCase

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "appusers"


class AppUsersTests(DaemonTestCase):
    """
    A plugin from a directory of its own.
    """

    async def test_exampleAuthenticatorLetsItsUsersIn(self) -> None:
        """It is found, shown and chosen, and says who may do what."""
        self.pluginPath = Path(shutil.copytree(EXAMPLE, self.root / "elsewhere"))
        shown = self.run_(["--help-auth"])
        self.assertEqual(await shown.exits(), 0)
        self.assertIn("appusers\n", shown.protocol.output)
        file = self.root / "users.sqlite"
        hash = scrypt(b"secret", salt=b"salt", n=2**14, r=8, p=1)
        with closing(sqlite3.connect(file)) as database:
            database.execute("CREATE TABLE users (name, salt, hash, grants)")
            row = ("ann", b"salt", hash, "publish 1 in/%u\nopen 1 #")
            database.execute("INSERT INTO users VALUES (?, ?, ?, ?)", row)
            database.commit()
        daemon = await self.start(f"--auth=appusers:database={file}")
        for password, topic, code in (
            (b"secret", "in/ann", None),
            (b"secret", "in/bob", 101016),
            (b"wrong", "in/ann", 101015),
        ):
            headers: dict[bytes | str, bytes | str] = {
                "Authorization": b"Basic " + b64encode(b"ann:" + password)
            }
            await daemon.call("/rest/open", topic=topic, headers=headers)
            answer = await daemon.call("/rest/publish", topic=topic, content="x", headers=headers)
            self.assertEqual(answer.get("code"), code, answer)
