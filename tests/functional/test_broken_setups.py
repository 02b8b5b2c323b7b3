"""
Broken set-ups: the daemon, C{svcbroker run --check} and C{svcbroker doctor} agree whether it
starts, and say why not in words that name the setting.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Final

from attrs import frozen
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import CertificateBuilder, Name, NameAttribute, NameOID, random_serial_number
from twisted.internet.protocol import Factory
from twisted.protocols.wire import Echo
from twisted.trial.unittest import SkipTest

from .daemon import LOCAL, DaemonTestCase, reactor

SAMPLES: Final = Path(__file__).parent.parent / "commands/samples"

Broken = Callable[["BrokenSetUpTests"], Sequence[str]]
"""Breaks something on the disk, and gives the options of the daemon."""


@frozen
class SetUp:
    """
    A set-up.

    @ivar name: its name.
    @ivar make: makes it.
    @ivar words: what each refusal has; empty where the daemon starts.
    @ivar hasChain: whether the data directory has a chain of group 1 before.
    """

    name: str
    make: Broken
    words: Sequence[str] = ()
    hasChain: bool = False


def given(*options: str) -> Broken:
    """Options alone; C{ROOT} in one stands for the directory of the test."""
    return lambda case: [each.replace("ROOT", str(case.root)) for each in options]


def file(text: str, *options: str) -> Broken:
    """The file C{ROOT/file} with a text, and options."""

    def make(case: BrokenSetUpTests) -> Sequence[str]:
        (case.root / "file").write_text(text)
        return given(*options)(case)

    return make


def thing(make: Callable[[Path], object], option: str) -> Broken:
    """Something else than a file in the place of one, and the option that names it."""

    def broken(case: BrokenSetUpTests) -> Sequence[str]:
        make(case.root / "file")
        return given(option)(case)

    return broken


def stored(change: Callable[[Path], object], *options: str) -> Broken:
    """A change of the data directory, and options."""

    def broken(case: BrokenSetUpTests) -> Sequence[str]:
        change(case.dataDir)
        return given(*options)(case)

    return broken


def instead(dataDir: Path) -> None:
    """A file in the place of the group's directory."""
    shutil.rmtree(dataDir / "1")
    (dataDir / "1").touch()


def dangling(path: Path) -> None:
    """A link to nothing."""
    path.symlink_to(path.with_name("nothing"))


def replaced(name: str, make: Callable[[Path], object]) -> Broken:
    """A file of the data directory, with something else in its place."""

    def change(dataDir: Path) -> None:
        path = dataDir / name
        path.unlink()
        make(path)

    return stored(change)


def sql(name: str, *statements: str) -> Broken:
    """A database of the data directory, changed."""

    def change(dataDir: Path) -> None:
        with closing(sqlite3.connect(dataDir / name, isolation_level=None)) as connection:
            for each in statements:
                connection.execute(each)

    return stored(change)


def certificate(root: Path, *, isExpired: bool = False, isOther: bool = False) -> Sequence[str]:
    """A certificate of an endpoint."""
    key, other = generate_private_key(SECP256R1()), generate_private_key(SECP256R1())
    name = Name([NameAttribute(NameOID.COMMON_NAME, "broker.example")])
    builder = CertificateBuilder(name, name, key.public_key(), random_serial_number())
    ends = datetime(2021 if isExpired else 2099, 1, 1)
    signed = builder.not_valid_before(datetime(2020, 1, 1)).not_valid_after(ends)
    (root / "key").write_bytes(
        (other if isOther else key).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    (root / "certificate").write_bytes(signed.sign(key, SHA256()).public_bytes(Encoding.PEM))
    return [f"--mqtt=ssl:0:privateKey={root}/key:certKey={root}/certificate:interface=127.0.0.1"]


def listening(case: BrokenSetUpTests) -> Sequence[str]:
    """A port on which another program listens."""
    port = reactor.listenTCP(0, Factory.forProtocol(Echo), interface="127.0.0.1")
    case.addCleanup(port.stopListening)
    return [f"--mqtt=tcp:{port.getHost().port}:interface=127.0.0.1"]


def mounted(options: str, *, isFull: bool = False) -> Broken:
    """A data directory on a small file system of its own; a copy of the chain is on it."""

    def make(case: BrokenSetUpTests) -> Sequence[str]:
        place = case.root / "mounted"
        place.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(place)]
        if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
            raise SkipTest("nothing can be mounted here")
        case.addCleanup(subprocess.run, ["umount", "-l", str(place)], check=True)
        if case.dataDir.exists():
            shutil.copytree(case.dataDir, place / "data")
        if isFull:
            with open(place / "rest", "wb", buffering=0) as rest, contextlib.suppress(OSError):
                while True:
                    rest.write(bytes(4096))
        else:
            subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True)
        return [f"--data-dir={place}/data"]

    return make


def older(case: BrokenSetUpTests) -> Sequence[str]:
    """The data directory of an earlier release."""
    with tarfile.open(SAMPLES / "schema4-first.tar.xz") as archive:
        archive.extractall(case.root / "older", filter="data")
    [found] = (case.root / "older").rglob("notes.sqlite")
    groups = [each.parent.name for each in found.parent.glob("*/ledger.sqlite")]
    return [f"--data-dir={found.parent}", *(f"--group={each}" for each in groups)]


def renamed(dataDir: Path) -> None:
    """The chain of another group."""
    (dataDir / "1").rename(dataDir / "2")


ACCOUNT: Final = '[accounts.ann]\nroles = ["reader"]\n[roles.reader]\ngrants = ["subscribe 1 a"]\n'

SETTINGS: Final = (
    SetUp("a busy port", listening, ["mqtt: ", "tcp:"]),
    SetUp("no port", given("--mqtt=tcp:70000"), ["mqtt: "]),
    SetUp("a socket in no directory", given("--mqtt=unix:ROOT/none/s"), ["mqtt: ", "No such file"]),
    SetUp("no endpoint", given("--mqtt=nonsense"), ["mqtt: cannot use 'nonsense'"]),
    SetUp(
        "an open port without accounts",
        given("--mqtt=tcp:0"),
        ["mqtt: tcp:0 is not known to be on loopback"],
    ),
    SetUp(
        "no certificate",
        given("--mqtt=ssl:0:privateKey=ROOT/key:certKey=ROOT/certificate"),
        ["mqtt: ", "No such file or directory"],
    ),
    SetUp(
        "a bad certificate",
        file("nonsense", "--mqtt=ssl:0:privateKey=ROOT/file:certKey=ROOT/file"),
        ["mqtt: "],
    ),
    SetUp(
        "a key that does not fit",
        lambda case: certificate(case.root, isOther=True),
        ["mqtt: ", "certificate"],
    ),
    SetUp(
        "a directory instead of a certificate",
        thing(Path.mkdir, "--mqtt=ssl:0:privateKey=ROOT/file:certKey=ROOT/file"),
        ["mqtt: ", "Is a directory"],
    ),
    SetUp("an expired certificate", lambda case: certificate(case.root, isExpired=True)),
    SetUp(
        "an unknown setting",
        file('log-leval = "info"', "--config=ROOT/file"),
        ["log-leval: there is no such setting; did you mean log-level?"],
    ),
    SetUp(
        "a doubled setting",
        file('mqtt = ""\nmqtt = ""\n', "--config=ROOT/file"),
        ["config: ", "is not TOML"],
    ),
    SetUp("a value out of range", given("--max-content=-1"), ["max-content: "]),
    SetUp(
        "a value out of range in a file",
        file("max-content = -1", "--config=ROOT/file"),
        ["max-content: "],
    ),
    SetUp("no configuration", given("--config=ROOT/none"), ["config: cannot read"]),
    SetUp(
        "a FIFO for the configuration",
        thing(os.mkfifo, "--config=ROOT/file"),
        ["config: ", "it is a FIFO, not a file"],
    ),
    SetUp(
        "a bad hash of a password",
        file('[accounts.ann]\npassword = "x"', "--accounts=ROOT/file"),
        ["accounts: ", "ann"],
    ),
    SetUp(
        "an unknown role",
        file('[accounts.ann]\nroles = ["none"]', "--accounts=ROOT/file"),
        ["accounts: ", "none"],
    ),
    SetUp(
        "a bad topic filter",
        file(ACCOUNT.replace("1 a", "1 a#"), "--accounts=ROOT/file"),
        ["accounts: ", "a#"],
    ),
    SetUp("no accounts", given("--accounts=ROOT/none"), ["accounts: ", "No such file"]),
    SetUp(
        "a directory instead of accounts",
        thing(Path.mkdir, "--accounts=ROOT/file"),
        ["accounts: ", "Is a directory"],
    ),
    SetUp("a link to no accounts", thing(dangling, "--accounts=ROOT/file"), ["accounts: "]),
    SetUp("a FIFO for accounts", thing(os.mkfifo, "--accounts=ROOT/file"), ["accounts: ", "FIFO"]),
    SetUp(
        "a bad grant of anonymous clients",
        given("--anonymous=publish 1 a#"),
        ["anonymous: "],
    ),
    SetUp("no keys of tokens", given("--auth=jwt:jwks=ROOT/none"), ["auth: "]),
    SetUp(
        "no secrets of webhooks",
        given("--webhook-secret-file=ROOT/none"),
        ["webhook-secret-file: cannot read"],
    ),
    SetUp(
        "no policy of witnesses",
        given("--witness-policy=ROOT/none"),
        ["witness-policy: cannot read"],
    ),
    SetUp(
        "a bad policy of witnesses",
        file("nonsense", "--witness-policy=ROOT/file"),
        ["witness-policy: "],
    ),
    SetUp("an unknown ledger", given("--ledger=pbtf"), ["ledger: "]),
    SetUp("a bad setting of the ledger", given("--ledger=pbft:nodes=0"), ["ledger: ", "nodes"]),
    SetUp(
        "no engine",
        given("--ledger=cometbft:home=ROOT/home:socket=/tmp/s:engine=ROOT/none"),
        ["engine: ", "no program that can be run"],
    ),
    SetUp(
        "no home of an engine",
        given("--ledger=cometbft:home=ROOT/home:socket=/tmp/s:engine=/bin/true"),
        ["home: ", "no home of an engine"],
    ),
    SetUp(
        "no place for a socket",
        given("--ledger=cometbft:home=ROOT/home:socket=/none/s"),
        ["socket: "],
    ),
    SetUp(
        "no token of a copy", given(r"--ledger=copy:url=http\://h:token-file=ROOT/none"), ["none"]
    ),
)

DIRECTORIES: Final = (
    SetUp("a file", stored(Path.touch), ["data-dir: ", "is not a directory"]),
    SetUp("a FIFO", stored(os.mkfifo), ["data-dir: ", "is not a directory"]),
    SetUp("a link to nothing", stored(dangling), ["data-dir: ", "where nothing is"]),
    SetUp(
        "a directory in a file",
        file("", "--data-dir=ROOT/file/data"),
        ["data-dir: cannot make", "is not a directory"],
    ),
    SetUp("a full disk", mounted("", isFull=True), ["data-dir: ", "room"]),
    SetUp("a full disk with a chain", mounted("", isFull=True), ["data-dir: ", "room"], True),
    SetUp("a disk for reading only", mounted("ro"), ["data-dir: ", "Read-only file system"]),
    SetUp(
        "a chain on a disk for reading only",
        mounted("ro"),
        ["data-dir: ", "Read-only file system"],
        True,
    ),
    SetUp(
        "rights of everybody",
        stored(lambda path: path.chmod(0o777)),
        ["data-dir: ", "every user of this machine may write"],
        True,
    ),
    SetUp("rights to read", stored(lambda path: path.chmod(0o755)), hasChain=True),
    SetUp("rights to an empty directory", stored(lambda path: path.mkdir(0o777))),
    SetUp(
        "a directory for a lock",
        stored(lambda path: (path / "lock").mkdir(parents=True)),
        ["data-dir: ", "lock"],
    ),
    SetUp("an older schema", older),
)


def writing(name: str, text: str = "x") -> Broken:
    """A file of the data directory with another text."""
    return stored(lambda path: (path / name).write_text(text))


def unfolded(dataDir: Path) -> None:
    """A write-ahead log whose middle is damaged, as of a daemon that was killed."""
    path = dataDir / LEDGER
    kept = {}
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for number in range(20):
            connection.execute(f"CREATE TABLE t{number} (x)")
            connection.execute(f"DROP TABLE t{number}")
        for each in (path, path.with_name(path.name + "-wal")):
            kept[each] = bytearray(each.read_bytes())
    for each, data in kept.items():
        if each != path:
            data[len(data) // 2] ^= 1
        each.write_bytes(data)


def removing(name: str) -> Broken:
    """A data directory without one of its files."""
    return stored(lambda path: (path / name).unlink())


def cutting(name: str, size: int) -> Broken:
    """A file of the data directory that is cut short."""
    return stored(lambda path: os.truncate(path / name, size))


def blanked(table: str, column: str) -> Broken:
    """A column of the ledger with nothing but zeros."""
    return sql("1/ledger.sqlite", f"UPDATE {table} SET {column} = zeroblob(length({column}))")


def chain(name: str, words: str, make: Broken) -> SetUp:
    """A set-up with a chain, and a word of each refusal."""
    return SetUp(name, make, [words], hasChain=True)


ENGINE: Final = "--ledger=cometbft:socket=/tmp/s"
LEDGER: Final = "1/ledger.sqlite"
METADATA: Final = "notes.sqlite"
KEY: Final = "1/keys/node0.key"
TEXT: Final = "x" * 200
DAMAGED: Final = (
    "UPDATE note SET value = x'00' WHERE kind != ''",
    "INSERT INTO note VALUES ('webhook', 'x', x'00', x'00')",
)

CHAINS: Final = (
    chain("a newer schema", "newer svcbroker", sql(LEDGER, "PRAGMA user_version = 99")),
    chain("a file cut short", LEDGER, cutting(LEDGER, 8192)),
    chain("an empty file", "is cut short", cutting(LEDGER, 0)),
    chain("a damaged last block", LEDGER, blanked("head", "header")),
    chain("a damaged certificate", "ledger.sqlite is damaged", blanked("head", "certificate")),
    chain("a damaged genesis", LEDGER, blanked("chain", "genesis")),
    chain("damaged topics", LEDGER, sql(LEDGER, "UPDATE topic SET name = 'b'")),
    chain("a lost end", LEDGER, sql(LEDGER, "DELETE FROM head WHERE height > 1")),
    chain("a view", "has a view", sql(LEDGER, "CREATE VIEW v AS SELECT 1")),
    chain("no chain, but its keys", "its keys are there", removing(LEDGER)),
    chain("a directory for a chain", LEDGER, replaced(LEDGER, Path.mkdir)),
    chain("a FIFO for a chain", "is a FIFO", replaced(LEDGER, os.mkfifo)),
    chain("a link to no chain", LEDGER, replaced(LEDGER, dangling)),
    chain("text for a chain", "is not a ledger", writing(LEDGER, TEXT)),
    chain("a missing key", "no key of node 0", removing(KEY)),
    chain("a bad key", "node0.key", writing(KEY)),
    chain("no keys", "has no keys", stored(lambda path: shutil.rmtree(path / "1/keys"))),
    chain("the chain of another group", "not of group 2", stored(renamed, "--group=2")),
    chain("the ledger memory", "a chain of the ledger pbft", given("--ledger=memory")),
    chain(
        "an engine's",
        "a chain of the ledger pbft",
        given("--ledger=cometbft:home=ROOT:socket=/tmp/s"),
    ),
    chain("the ledger copy", "has keys", given("--ledger=copy:url=http\\://127.0.0.1\\:9")),
    chain("a copy", "is a copy", writing("1/copy-of")),
    chain("a damaged tip", "ledger.sqlite-tip", writing("1/ledger.sqlite-tip")),
    chain("a damaged write-ahead log", "ledger.sqlite-wal is damaged", stored(unfolded)),
    chain("a file for a group", "1 is not a directory", stored(instead)),
    chain("damaged metadata", "notes.sqlite is damaged", sql(METADATA, *DAMAGED)),
    chain("newer metadata", METADATA, sql(METADATA, "PRAGMA user_version = 99")),
    chain("foreign metadata", METADATA, sql(METADATA, "PRAGMA application_id = 99")),
    chain("metadata cut short", METADATA, cutting(METADATA, 5000)),
    chain("a FIFO for metadata", "is a FIFO", replaced(METADATA, os.mkfifo)),
    chain("a directory for metadata", METADATA, replaced(METADATA, Path.mkdir)),
    chain("text for metadata", METADATA, writing(METADATA, TEXT)),
)


class BrokenSetUpTests(DaemonTestCase):
    """
    Broken set-ups, as an operator meets them.
    """

    async def makeChain(self) -> Path:
        """A data directory with a chain of some blocks, to be copied."""
        self.dataDir = self.root / "original"
        daemon = await self.start(ledger="pbft")
        await daemon.rpc("open", topic="a", groupId="1")
        await daemon.call("/rest/publish", topic="a", content="1")
        self.assertEqual(await daemon.stop(), 0)
        return self.dataDir

    async def compare(self, setUps: Sequence[SetUp]) -> None:
        """Make each set-up, and ask all three."""
        chain, top = await self.makeChain(), self.root
        problems = []
        for number, each in enumerate(setUps):
            self.root = top / str(number)
            self.root.mkdir()
            self.dataDir = self.root / "data"
            if each.hasChain:
                shutil.copytree(chain, self.dataDir)
            try:
                options = each.make(self)
            except SkipTest:
                continue
            problems.extend(await self.problemsOf(each, options))
        self.assertFalse(problems, "\n".join(problems))

    async def problemsOf(self, setUp: SetUp, options: Sequence[str]) -> list[str]:
        """What is wrong with the answers about a set-up."""
        arguments = [
            f"--http={LOCAL}",
            f"--data-dir={self.dataDir}",
            "--stomp=",
            "--mqtt=",
            *options,
        ]
        answers = {
            "run --check": await self.checked(*arguments),
            "doctor": await self.diagnosed(*arguments),
            "the daemon": await self.started(*arguments),
        }
        return [
            f"{setUp.name}: {who}: {answer!r}"
            for who, answer in answers.items()
            if bool(answer) is not bool(setUp.words)
            or "Traceback" in answer
            or any(word not in answer for word in setUp.words)
        ]

    async def checked(self, *arguments: str) -> str:
        """What C{run --check} has against a start; empty for nothing."""
        code, _, errors = await self.outcomeOf("run", "--check", *arguments)
        return errors or f"exit {code}" if code else ""

    async def diagnosed(self, *arguments: str) -> str:
        """What the doctor has against a start; empty for nothing."""
        code, output, errors = await self.outcomeOf("doctor", "--json", *arguments)
        if errors:
            return errors
        *findings, _ = map(json.loads, output.splitlines())
        starts = [each for each in findings if each["subject"] == "start"]
        if [each["level"] for each in starts] == ["good"]:
            return ""
        self.assertEqual(code, 1)
        return "\n".join(
            f"{each['subject']}: {each['finding']}"
            for each in findings
            if each["level"] == "problem"
        )

    async def started(self, *arguments: str) -> str:
        """Why the daemon does not start; empty where it does."""
        daemon = self.run_(arguments)
        try:
            await daemon.serves()
        except AssertionError:
            self.assertIn(await daemon.exits(), (1, 2))
            said = daemon.protocol.output + daemon.protocol.errors
            return said if "Traceback" in said else daemon.protocol.errors or "no word"
        self.assertEqual(await daemon.stop(), 0)
        return ""

    async def test_runningDaemonIsNoRefusalOfItsNextStart(self) -> None:
        """Its lock and its ports are its own; a second daemon is refused."""
        daemon = await self.start(ledger="pbft")
        http = daemon.base.removesuffix("/svcbroker").replace("http://127.0.0.1", "tcp")
        arguments = [f"--http={http}:interface=127.0.0.1", f"--data-dir={self.dataDir}"]
        arguments += ["--stomp=", "--mqtt="]
        code, output, errors = await self.outcomeOf("run", "--check", *arguments)
        self.assertEqual((code, errors), (0, ""))
        self.assertIn(f"A daemon (process {daemon.process.pid}) uses the data", output)
        self.assertEqual(await self.diagnosed(*arguments), "")
        line = await self.refused(f"--http={LOCAL}", f"--data-dir={self.dataDir}")
        self.assertIn("data-dir: another svcbroker is using", line)

    async def test_settingsAreRefusedByAllThree(self) -> None:
        await self.compare(SETTINGS)

    async def test_dataDirectoriesAreRefusedByAllThree(self) -> None:
        await self.compare(DIRECTORIES)

    async def test_chainsAreRefusedByAllThree(self) -> None:
        await self.compare(CHAINS)
