"""
The descriptions of the interface, checked by what their formats' authors publish.

Each test is skipped where its package is not installed: C{jsonschema_rs} (pip, with the extra
C{contract}); C{@open-rpc/meta-schema}, C{@json-schema-tools/meta-schema} and C{@asyncapi/parser}
(npm).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from typing import Any
from urllib.request import urlopen
from uuid import uuid4

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.http.logins import HttpSettings
from svcbroker.operations import WEEVENT, WEEVENT_INTERFACE
from tests.carriers.http.support import BASE, Client
from tests.needed import needPackage
from tests.waiting import TIMEOUT

from .daemon import shared
from .node import nodeModules

with contextlib.suppress(ImportError):
    import jsonschema_rs

_DRAFT = "http://json-schema.org/draft-07/schema#"
_OPENRPC = "@open-rpc/meta-schema"
_JSON_SCHEMA = "@json-schema-tools/meta-schema"
_PRINT = """
const schemas = process.argv.slice(1).map((name) => require(name).default);
console.log(JSON.stringify(schemas));
"""
_ASYNCAPI = "@asyncapi/parser"
_PARSE = """
const { Parser } = require(process.argv[1]);
const text = require("fs").readFileSync(0, "utf8");
new Parser().parse(text).then(({ document, diagnostics }) => {
  const names = document ? document.operations().all().map((each) => each.id()) : [];
  // 0 is an error, 1 a warning; the others are advice.
  const wrong = diagnostics.filter((each) => each.severity < 2);
  console.log(JSON.stringify([names, wrong]));
});
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
        timeout=TIMEOUT,
    ).stdout


class DescriptionTests(SynchronousTestCase):
    def documents(self, name: str) -> list[Any]:
        """
        A document as clients read it: of a broker's own path, of a dialect's, and of a broker's
        whose place a dialect takes.
        """
        return [
            Client(HttpSettings(basePath=base), dialects={WEEVENT.basePath: WEEVENT_INTERFACE})
            .ask("GET", f"{path}/{name}")
            .json()
            for base, path in ((BASE, BASE), (BASE, WEEVENT.basePath), (WEEVENT.basePath,) * 2)
        ]

    def test_openrpcKeepsToItsSchema(self) -> None:
        """The meta-schema of OpenRPC, with that of the schemas in it, finds nothing."""
        modules = nodeModules(_OPENRPC, _JSON_SCHEMA)
        needPackage("jsonschema_rs", "contract")
        schema, inner = json.loads(node(_PRINT, modules, _OPENRPC, _JSON_SCHEMA))
        # Both are of a dialect that the inner one itself defines, and of draft 7 as well.
        schema["$schema"] = inner["$schema"] = _DRAFT
        registry = jsonschema_rs.Registry([("https://meta.json-schema.tools", inner)])
        validator = jsonschema_rs.Draft7Validator(schema, registry=registry)
        for document in self.documents("openrpc.json"):
            self.assertEqual([str(error) for error in validator.iter_errors(document)], [])
        document["methods"][0]["params"][0]["schema"] = {"type": 3}
        self.assertFalse(validator.is_valid(document))

    def test_resultsKeepToOpenRPC(self) -> None:
        """What methods are called with and what they answer is valid by their schemas."""
        needPackage("jsonschema_rs", "contract")
        host, port = shared().http
        topic = f"descriptions/{uuid4().hex}"

        def ask(name: str, params: object = None) -> Any:
            text = json.dumps({"jsonrpc": "2.0", "id": 1, "method": name, "params": params})
            with urlopen(f"http://{host}:{port}{BASE}/jsonrpc", text.encode(), 30) as answer:
                return json.load(answer)["result"]

        document = ask("rpc.discover")
        components = document["components"]
        methods = {each["name"]: each for each in document["methods"]}

        def call(name: str, **params: Any) -> Any:
            result = ask(name, params)
            method = methods[name]
            schemas = {each["name"]: each["schema"] for each in method["params"]}
            pairs = [(schemas[key], value) for key, value in params.items()]
            for schema, value in [*pairs, (method["result"]["schema"], result)]:
                whole = {**schema, "components": components}
                jsonschema_rs.validator_for(whole).validate(value)
            return result

        call("open", topic=topic)
        call("exist", topic=topic, groupId="1")
        eventId = call("publish", topic=topic, content="eA==", extensions={"svc-a": "b"})["eventId"]
        call("getEvent", eventId=eventId)
        self.assertEqual(
            len(call("events", topic=topic, limit=5, **{"from": eventId})["events"]), 0
        )
        self.assertEqual(len(call("events", topic=f"{topic}/#", reverse=True)["events"]), 1)
        call("list", pageIndex=0, pageSize=1)
        call("state", topic=topic)

    def test_asyncapiKeepsToItsSchema(self) -> None:
        """Its authors' parser finds neither an error nor a warning in it, but in a wrong one."""
        modules = nodeModules(_ASYNCAPI)

        def parse(document: Any) -> Any:
            return json.loads(node(_PARSE, modules, _ASYNCAPI, text=json.dumps(document)))

        for document in self.documents("asyncapi.json"):
            self.assertEqual(parse(document), [list(document["operations"]), []])
        document["operations"]["follow"]["action"] = "push"
        names, wrong = parse(document)
        self.assertEqual(names, [])
        self.assertNotEqual(wrong, [])
