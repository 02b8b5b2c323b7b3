"""
The descriptions of the interface, checked by what their formats' authors publish.

Each test is skipped where its package is not installed: C{jsonschema_rs} (pip, with the extra
C{contract}); C{@open-rpc/meta-schema} and C{@json-schema-tools/meta-schema} (npm).
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.carriers.http.support import BASE, Client

from .node import nodeModules

try:
    import jsonschema_rs
except ImportError:
    hasSchemas = False
else:
    hasSchemas = True

_DRAFT = "http://json-schema.org/draft-07/schema#"
_OPENRPC = "@open-rpc/meta-schema"
_JSON_SCHEMA = "@json-schema-tools/meta-schema"
_PRINT = """
const schemas = process.argv.slice(1).map((name) => require(name).default);
console.log(JSON.stringify(schemas));
"""


def node(script: str, modules: str, *arguments: str, text: str = "") -> str:
    """What a script for Node prints."""
    return subprocess.run(
        ["node", "-e", script, *arguments],
        input=text,
        env={**os.environ, "NODE_PATH": modules},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    ).stdout


class DescriptionTests(SynchronousTestCase):
    def document(self, name: str) -> Any:
        """A document as a client reads it."""
        return Client().ask("GET", f"{BASE}/{name}").json()

    def test_openrpcKeepsToItsSchema(self) -> None:
        """The meta-schema of OpenRPC, with that of the schemas in it, finds nothing."""
        modules = nodeModules(_OPENRPC, _JSON_SCHEMA)
        if not hasSchemas:
            raise SkipTest("jsonschema_rs is not installed (extra: contract)")
        schema, inner = json.loads(node(_PRINT, modules, _OPENRPC, _JSON_SCHEMA))
        # Both are of a dialect that the inner one itself defines, and of draft 7 as well.
        schema["$schema"] = inner["$schema"] = _DRAFT
        registry = jsonschema_rs.Registry([("https://meta.json-schema.tools", inner)])
        validator = jsonschema_rs.Draft7Validator(schema, registry=registry)
        document = self.document("openrpc.json")
        self.assertEqual([str(error) for error in validator.iter_errors(document)], [])
        document["methods"][0]["params"][0]["schema"] = {"type": 3}
        self.assertFalse(validator.is_valid(document))
