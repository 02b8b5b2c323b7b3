"""
The verifiers of bundles agree: the package, the page in a bundle, and the example that was written
from the documentation alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import Malformed
from svcbroker.proofs import ProofInvalid
from svcbroker.proofs import bundle as bundles
from svcbroker.proofs.bundle import Bundle, decodeArchive, encodeArchive
from svcbroker.proofs.tlog import MlDsaWitnessKey, Policy
from tests import examples
from tests.needed import neededProgram
from tests.proofs.mutations import mutations, randomlyChanged

from ..proofs.bundle.support import bundle, mlDsaBundle, signedBundle
from ..proofs.bundle.test_bundle import mutated

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
SAMPLES = ROOT / "tests" / "commands" / "samples"
MUTATIONS = examples(150)

Files = Mapping[str, bytes]

_NODE = """
import { readFileSync } from "node:fs";
await import(process.env.PAGE);
const said = [];
for (const each of JSON.parse(readFileSync(0, "utf8"))) {
  const bytes = Uint8Array.from(Buffer.from(each, "base64"));
  const judged = globalThis.svcbroker.verifyBundle(bytes);
  said.push(await judged.then(() => "", (error) => error.message));
}
console.log(JSON.stringify(said));
"""

_PYTHON = """
import importlib, json, sys
from base64 import b64decode
verifyBundle = importlib.import_module("verify-bundle").verifyBundle
said = []
for each in json.load(sys.stdin):
    try:
        verifyBundle(b64decode(each))
        said.append("")
    except Exception as error:
        said.append(str(error) or type(error).__name__)
print(json.dumps(said))
"""


def changedProof(files: Files, change: Any) -> Files:
    """Some files, with the event proof in the first proof changed."""
    name = min(each for each in files if each.startswith("proofs/"))
    first, extra, rest = files[name].split(b"\n", 2)
    changed = change(b64decode(extra.removeprefix(b"extra ")))
    return {**files, name: b"\n".join((first, b"extra " + b64encode(changed), rest))}


def goodBundles() -> Iterator[tuple[str, bytes]]:
    """Bundles that prove what they say."""
    yield "plain", bundle().encode()
    if MlDsaWitnessKey.of("w", bytes(32)) is not None:
        yield "with ML-DSA", mlDsaBundle().encode()
    for isErased in (False, True):
        for isWitnessed in (False, True):
            made = signedBundle(erased=isErased, witnessed=isWitnessed)
            yield f"erased: {isErased}, witnessed: {isWitnessed}", made.encode()
    yield "stamped", evolve(bundle(), timestamps={"x.tsr": b"of an authority"}).encode()
    for path in sorted(SAMPLES.glob("bundle*.tar.xz")):
        with tarfile.open(path) as archive:
            file = archive.extractfile("./bundle.zip")
            assert file is not None
            yield path.name, file.read()
    files = decodeArchive(bundle().encode())
    for name, change in (
        ("in a response", lambda proof: b'{"id": 1, "jsonrpc": "2.0", "result": %b}' % proof),
        (
            "with white space",
            lambda proof: json.dumps(json.loads(proof), indent="\r\n\t ").encode(),
        ),
        ("minus nothing", lambda proof: proof.replace(b'"generation":0', b'"generation":-0')),
    ):
        yield name, encodeArchive(changedProof(files, change))
    for name, text in (
        ("comments", b"# \xc3\xbc\n\n \t\n" + files["policy.txt"]),
        ("tabs", files["policy.txt"].replace(b" ", b"\t ")),
        ("URLs", files["policy.txt"].replace(b"\nwitness", b" https://log.example\nwitness", 1)),
    ):
        yield name, encodeArchive({**files, "policy.txt": text})
    yield (
        "without its page",
        encodeArchive(
            {
                name: data
                for name, data in files.items()
                if name not in ("verify.html", "README.txt")
            }
        ),
    )


def badBundles() -> Iterator[tuple[str, bytes]]:
    """Bundles that are refused, each for one reason."""
    data = bundle().encode()
    files = decodeArchive(data)
    proof = min(name for name in files if name.startswith("proofs/"))
    for name, content in (
        ("more", b""),
        ("proofs/more", files[proof]),
        (proof.removesuffix(".tlog-proof"), files[proof]),
        (f"{proof}.tlog-proof", files[proof]),
        ("proofs/.tlog-proof", files[proof]),
        ("timestamps", b""),
        ("__proto__", b"x"),
        ("Policy.txt", b""),
        ("policy.txt", b""),
        (proof, b""),
        *(("erasures.json", each) for each in _ERASURES),
        *(("policy.txt", each) for each in _policies(files["policy.txt"])),
    ):
        yield f"{name[:60]}: {content[:60]!r}", encodeArchive({**files, name: content})
    yield "no policy", encodeArchive({n: d for n, d in files.items() if n != "policy.txt"})
    yield "no proofs", encodeArchive({n: d for n, d in files.items() if n[:7] != "proofs/"})
    yield "nothing", encodeArchive({})
    for name, change in _PROOFS:
        yield name, encodeArchive(changedProof(files, change))
    with mock.patch.object(bundles, "FORMAT", "svcbroker/bundle/2"):
        yield "a later format", encodeArchive(files)
    for name, wrong in (("cut", data[:-1]), ("longer", data + b"\0"), ("empty", b"")):
        yield name, wrong
    dice = Random(27)
    for number in range(40):
        yield f"mutation {number}", mutated(data, dice)


_NOTE = b'{"timestamp":1,"account":"a","reason":"r","transHash":"0x"}'
_ERASURES = (
    b"",
    b"[]",
    b"null",
    b"{",
    b'{"x": 1}',
    b'{"x": {}}',
    b'{"x": %b}' % _NOTE.replace(b":1,", b":1.0,"),
    b'{"x": %b}' % _NOTE.replace(b":1,", b':"1",'),
    b'{"x": %b}' % _NOTE.replace(b":1,", b":null,"),
    b'{"x": %b}' % _NOTE.replace(b'"r"', b"null"),
    b'{"x": %b}' % _NOTE.replace(b'"r"', b'"\\ud800"'),
    b'{"x": %b}' % _NOTE.replace(b"{", b'{"more":1,'),
    b'{"x": %b, "x": %b}' % (_NOTE, _NOTE),
    b'\xff{"x": %b}' % _NOTE,
)
_PROOFS: Sequence[tuple[str, Any]] = (
    ("a fraction", lambda proof: proof.replace(b'"index":0', b'"index":0.0')),
    ("an exponent", lambda proof: proof.replace(b'"index":0', b'"index":0e0')),
    ("a height of 2.0", lambda proof: proof.replace(b'"height":2', b'"height":2.0')),
    ("a height of 2e0", lambda proof: proof.replace(b'"height":2', b'"height":2e0')),
    ("a count of 1E0", lambda proof: proof.replace(b'Count":1', b'Count":1E0')),
    ("a member twice", lambda proof: b'{"index":0,' + proof[1:]),
    ("a member twice, escaped", lambda proof: b'{"\\u0069ndex":0,' + proof[1:]),
    ("a member twice, spaced", lambda proof: b'{"index" \n:0,' + proof[1:]),
    ("another member", lambda proof: b'{"more":0,' + proof[1:]),
    ("a later format", lambda proof: proof.replace(b"event-proof/", b"event-proof/4")),
    ("a refusal", lambda proof: b'{"jsonrpc":"2.0","error":{"code":1,"message":"no"}}'),
    ("a result that is none", lambda proof: b'{"jsonrpc":"2.0","result":null}'),
    ("a byte order mark", lambda proof: b"\xef\xbb\xbf" + proof),
    ("no number", lambda proof: proof.replace(b'"index":0', b'"index":NaN')),
    ("nothing", lambda proof: b""),
    ("a list", lambda proof: b"[%b]" % proof),
)


def _policies(good: bytes) -> Iterator[bytes]:
    yield good.replace(b"\n", b"\r\n")
    yield good.replace(b"quorum all", b"quorum all\nquorum all")
    yield good.replace(b"quorum all", b"quorum some")
    yield good.replace(b"quorum all", b"")
    yield good.replace(b"all 2 a b c", b"all all a b c")
    yield good.replace(b"all 2 a b c", b"all 4 a b c")
    yield good.replace(b"all 2 a b c", b"all 0 a b c")
    yield good.replace(b"all 2 a b c", b"all 02 a b c")
    yield good.replace(b"all 2 a b c", b"all toString a b c")
    yield good.replace(b"all 2 a b c", b"all 2 a a b c")
    yield good.replace(b"all 2 a b c", b"a 2 a b c")
    yield good.replace(b"log ", b"log \xc2\xad")
    yield good.replace(b"log ", b"blog ")
    yield good + b"# \x07\n"
    yield good + b"# \x7f\n"
    yield good + b"# \xff\n"
    yield good + b"\n" * 1000
    yield good + good.split(b"\n", 1)[0] + b"\n"


class AgreementTests(SynchronousTestCase):
    """
    Three verifiers and one corpus.
    """

    def judged(self, bundles: Sequence[bytes]) -> Sequence[tuple[str, str, str]]:
        """The words of the package, the page and the example on each; empty where it is taken."""
        given = json.dumps([b64encode(each).decode() for each in bundles])
        page = [neededProgram("node"), "--input-type=module", "-e", _NODE]
        example = [sys.executable, "-c", _PYTHON]
        script = Path(self.mktemp()).with_suffix(".mjs").absolute()
        html = decodeArchive(bundle().encode())["verify.html"].decode()
        script.write_text(html.split('<script type="module">')[1].split("</script>")[0])
        environments = {"PAGE": script.as_uri()}, {"PYTHONPATH": str(EXAMPLES)}
        said = [[self.package(each) for each in bundles]]
        for command, environment in zip((page, example), environments, strict=True):
            done = subprocess.run(
                command, input=given, env=environment, capture_output=True, text=True, timeout=300
            )
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            said.append(json.loads(done.stdout))
        return list(zip(*said, strict=True))

    def package(self, data: bytes) -> str:
        """The words of the package."""
        try:
            read = Bundle.decode(data)
            read.verify(Policy.parse(read.policy))
        except (Malformed, ProofInvalid) as error:
            return str(error)
        return ""

    def test_goodBundlesAreAccepted(self) -> None:
        """All of them take each good bundle."""
        names, bundles = zip(*goodBundles(), strict=True)
        for name, said in zip(names, self.judged(bundles), strict=True):
            self.assertEqual(said, ("", "", ""), name)

    def test_badBundlesAreRefused(self) -> None:
        """None of them takes a bad one."""
        names, bundles = zip(*badBundles(), strict=True)
        for name, said in zip(names, self.judged(bundles), strict=True):
            self.assertTrue(all(said), (name, said))

    def test_laterFormatIsNamed(self) -> None:
        """Package and page tell a later format from damage."""
        files = decodeArchive(bundle().encode())
        with mock.patch.object(bundles, "FORMAT", "svcbroker/bundle/2"):
            data = encodeArchive(files)
        [(package, page, _)] = self.judged([data])
        self.assertIn("svcbroker/bundle/2, and this svcbroker reads svcbroker/bundle/1", package)
        self.assertIn("does not read svcbroker/bundle/2", page)

    def test_changesAreJudgedAlike(self) -> None:
        """Of changed proofs they take and refuse the same."""
        dice = Random(2711)
        files = decodeArchive(signedBundle().encode())
        bundles: list[bytes] = []

        def collect(proof: bytes) -> bytes:
            documents = [json.dumps(each).encode() for _, each in mutations(json.loads(proof))]
            texts = [randomlyChanged(proof, dice) for _ in range(MUTATIONS)]
            for each in (*dice.sample(documents, MUTATIONS), *texts):
                bundles.append(encodeArchive(changedProof(files, lambda _, each=each: each)))
            return proof

        changedProof(files, collect)
        for data, said in zip(bundles, self.judged(bundles), strict=True):
            taken = {not each for each in said}
            self.assertEqual(len(taken), 1, (said, decodeArchive(data)))
