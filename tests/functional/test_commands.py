"""
The commands of the console script that publish and read, on the real daemon.
"""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from .daemon import LOCAL, DaemonTestCase

COMMAND = (sys.executable, "-m", "svcbroker.commands")


class CommandTestCase(DaemonTestCase):
    """
    A daemon, and commands that ask it.
    """

    async def serve(self, *arguments: str) -> None:
        """Start it; commands find it by the environment."""
        self.daemon = await self.run_(
            [f"--http={LOCAL}", "--ledger=pbft", f"--data-dir={self.dataDir}", *arguments]
        ).serves()
        self.environment.update(
            SVCBROKER_URL=self.daemon.base, XDG_CONFIG_HOME=str(self.root / "config")
        )

    async def svcbroker(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> list[str]:
        """The lines that a command writes: where it fails, its one line of standard error."""
        status, output, told = await self.outcomeOf(*arguments, stdin=stdin)
        errors = told.splitlines()
        self.assertEqual(status, code, (arguments, errors))
        self.assertLessEqual(len(errors), 1 if code else 0, errors)
        return errors if code == 2 else [*output.splitlines(), *errors]

    async def json(self, *arguments: str) -> list[Any]:
        """The same as JSON."""
        return [json.loads(line) for line in await self.svcbroker(*arguments, "--json")]


class CommandTests(CommandTestCase):
    """
    The commands that publish and read.
    """

    async def test_publishedEventsAreRead(self) -> None:
        """By all commands that read."""
        await self.serve()
        self.assertEqual(
            await self.svcbroker("topic", "open", "a", "b/c"), ["open: a", "open: b/c"]
        )
        [first] = await self.svcbroker("pub", "a", "21.5", "--ext", "unit=C")
        [second] = await self.svcbroker("pub", "b/c", "--expect=0", stdin=b"x\0\xff")
        both = [first, second]
        events = await self.json("events", "#")
        self.assertEqual([each["eventId"] for each in events], both)
        page = await self.daemon.call("/rest/events", topic="#")
        self.assertEqual(events, page["events"])
        [single] = await self.json("get", first)
        del events[0]["timestamp"]
        self.assertEqual(single, events[0])
        template = r"--template={eventId}\t{topic} {content}{svc-unit}{base64}{author}"
        line = f"{first}\ta 21.5CMjEuNQ=="
        self.assertEqual(await self.svcbroker("events", "a", template), [line])
        self.assertEqual(await self.svcbroker("get", first, template), [line])
        self.assertEqual(
            await self.svcbroker("sub", "a", "--from=0", "--count=1", template), [line]
        )
        stored = ("sub", "a", "--until-end", "--pace=99", template)
        self.assertEqual(await self.svcbroker(*stored), [line])
        self.assertEqual(await self.svcbroker("replay", "a", "--speed=99", template), [line])
        ids = "--template={eventId}"
        self.assertEqual(await self.svcbroker("events", "#", "--reverse", ids), both[::-1])
        self.assertEqual(await self.svcbroker("events", "#", "--limit=1", ids), both[:1])
        self.assertEqual(await self.svcbroker("events", "#", "--since=1h", ids), both)
        self.assertEqual(await self.svcbroker("events", "#", f"--from={first}", ids), both[1:])
        self.assertEqual(await self.svcbroker("tail", "#", "--count=2", ids), both)
        self.assertEqual(await self.svcbroker("sub", "#", "--last=1", "--until-end", ids), both[1:])
        self.assertEqual(
            await self.svcbroker("sub", "#", "--since=1h", "--until-end", "--limit=1", ids),
            both[:1],
        )
        self.assertEqual(await self.svcbroker("tail", "#", "-n1", "--count=1", ids), both[1:])
        [people] = await self.svcbroker("events", "b/c")
        self.assertIn(f"UTC  {second}  b/c  binary, 3 bytes", people)
        self.assertEqual(await self.svcbroker("get", first, "--content"), ["21.5"])

    async def test_erasedEventsHaveTheirLine(self) -> None:
        """In all commands that read, where they count as others do."""
        await self.serve()
        await self.svcbroker("topic", "open", "a")
        ids = [
            (await self.svcbroker("pub", "a", content, "--ext", "unit=C"))[0] for content in "xyz"
        ]
        await self.svcbroker("erase", str(self.dataDir), "--reason", "request 17", *ids[:2])
        events = await self.svcbroker("events", "a")
        for line, id in zip(events[:2], ids[:2], strict=True):
            self.assertRegex(
                line, rf"^\S+ \S+ UTC  {id}  a  erased [0-9-]{{10}}: request 17  svc-unit=C$"
            )
            self.assertEqual(await self.svcbroker("get", id), [line])
        self.assertIn(f"{ids[2]}  a  z", events[2])
        for command in (
            ("events", "a", "--limit=3"),
            ("replay", "a", "--speed=99"),
            ("sub", "a", "--from=OFFSET_FIRST", "--count=3"),
            ("tail", "a", "--count=3"),
            ("tail", "a", "-n3", "--count=3"),
        ):
            self.assertEqual(await self.svcbroker(*command), events, command)
            if command[0] != "replay":
                hidden = await self.svcbroker(
                    *(each.replace("count=3", "count=1") for each in command), "--erased=hide"
                )
                self.assertEqual(hidden, events[2:], command)
        page = await self.daemon.call("/rest/events", topic="a", erased="tombstone")
        self.assertEqual(await self.json("events", "a"), page["events"])
        template = "--template={sequence}|{content}|{erased}"
        shown = await self.svcbroker("events", "a", template)
        self.assertRegex(shown[0], r"^1\|\|erased \S+: request 17$")
        self.assertEqual(shown[2], "3|z|")
        for option in "--erased=hide", "--content":
            [line] = await self.svcbroker("get", ids[0], option, code=1)
            self.assertIn("100305", line)

    async def test_linesArePublishedOnce(self) -> None:
        """Standard input that is published again with its key gives the same events."""
        await self.serve()
        await self.svcbroker("topic", "open", "a")
        lines = b"".join(b"%d\n" % number for number in range(1200)) + b"end"
        arguments = ("pub", "a", "--lines", "--idempotency-key=k")
        ids = await self.svcbroker(*arguments, stdin=lines)
        self.assertEqual(len(set(ids)), 1201)
        self.assertEqual(await self.svcbroker(*arguments, stdin=lines), ids)
        [line] = await self.svcbroker("pub", "none", "--lines", stdin=b"x\n\ny\n", code=1)
        self.assertIn("2 lines not published, the first is line 1", line)
        read = await self.svcbroker("events", "a", "--template={content}")
        self.assertEqual(sorted(read), sorted(lines.decode().split("\n")))
        [state] = await self.json("topic", "info", "a")
        self.assertEqual(state["sequenceNumber"], 1201)

    async def test_topicsAreListedAndClosed(self) -> None:
        await self.serve()
        await self.svcbroker("topic", "open", "a", "b")
        self.assertEqual(await self.svcbroker("topic", "list"), ["a", "b"])
        self.assertEqual(await self.svcbroker("topic", "close", "a"), ["closed: a"])
        self.assertEqual([each["topicName"] for each in await self.json("topic", "list")], ["b"])
        [line] = await self.svcbroker("pub", "a", "x", code=1)
        self.assertIn("open it: svcbroker topic open a", line)

    async def test_signedEventIsProved(self) -> None:
        """Against a kept genesis, and not against a checkpoint of another chain."""
        await self.serve()
        await self.svcbroker("topic", "open", "a")
        [public] = await self.svcbroker("keygen", "key.pem")
        [event] = await self.svcbroker("pub", "a", "x", "--sign", "key.pem")
        [proved] = await self.json("prove", event, "--output=proof.json")
        self.assertTrue(proved["proved"])
        self.assertEqual((self.root / "proof.json").stat().st_mode & 0o777, 0o600)
        [line] = await self.svcbroker("prove", event, "--output=proof.json", code=2)
        self.assertIn("proof.json: it exists already", line)
        self.assertIn(proved["author"], public)
        genesis = await self.daemon.call("/rest/genesis")
        (self.root / "genesis.json").write_text(json.dumps(genesis))
        lines = await self.svcbroker("verify", "proof.json", "--genesis=genesis.json")
        proved = await self.svcbroker("prove", event, "--genesis=genesis.json")
        self.assertEqual(proved[:8], lines[:8])
        wrong = f"--checkpoint={event.rpartition('-')[2]}:{'0' * 64}"
        [line] = await self.svcbroker("prove", event, wrong, code=1)
        self.assertTrue(line.startswith("NOT PROVED: "))

    async def test_eventIsProvedByWhatIsTrusted(self) -> None:
        """
        By the genesis, by the checkpoint of its block or of a later one, and by both; C{verify}
        agrees. A checkpoint before it cannot cover it.
        """
        await self.serve()
        await self.svcbroker("topic", "open", "a")
        ids = [(await self.svcbroker("pub", "a", text))[0] for text in ("one", "two", "three")]
        heights = [int(each.rpartition("-")[2]) for each in ids]
        (self.root / "genesis.json").write_text(json.dumps(await self.daemon.call("/rest/genesis")))
        before, own, later = [
            f"--checkpoint={record['checkpoint']}"
            for record in [
                await self.daemon.call("/rest/checkpoint", height=str(each)) for each in heights
            ]
        ]
        genesis, proof = "--genesis=genesis.json", "proof.json"
        for trusted in ((genesis,), (own,), (later,), (own, genesis), (later, genesis)):
            [proved] = await self.json("prove", ids[1], *trusted, f"--output={proof}")
            self.assertEqual((proved["eventId"], proved["content"]), (ids[1], "two"), trusted)
            [verified] = await self.json("verify", proof, *trusted)
            self.assertEqual((verified["proved"], verified["eventId"]), (True, ids[1]), trusted)
            (self.root / proof).unlink()
        reason = (
            f"NOT PROVED: the checkpoint is of block {heights[0]}, the event is in block "
            f"{heights[1]}: it cannot cover it"
        )
        for trusted in ((before,), (before, genesis)):
            lines = await self.svcbroker("prove", ids[1], *trusted, f"--output={proof}", code=1)
            self.assertEqual(lines, [reason])
            self.assertEqual(await self.svcbroker("verify", proof, *trusted, code=1), [reason])
            (self.root / proof).unlink()
        [line] = await self.svcbroker("prove", "x", own, code=2)
        self.assertIn("event id is malformed", line)

    async def test_benchPublishesWhatItTells(self) -> None:
        """Over each protocol. Elsewhere than on this machine it asks before."""
        await self.serve(f"--mqtt={LOCAL}", f"--stomp={LOCAL}")
        ports = {}
        for name in ("mqtt", "stomp"):
            pattern = rf"{name.upper()} on 127\.0\.0\.1:(\d+)"
            ports[name] = (await self.daemon.protocol.waitFor(pattern))[1]
        common = ("--seconds=0.3", "--connections=3", "--size=10", "--yes")
        for words in (
            ("--over=rest",),
            ("--over=jsonrpc", "--batch=7"),
            *((f"--over={name}", f"--port={port}", "--window=5") for name, port in ports.items()),
        ):
            topic = f"bench/{words[0]}"
            [found] = await self.json("bench", topic, *words, *common)
            [state] = await self.json("topic", "info", topic)
            # Those of the warm-up are not told.
            self.assertGreater(state["sequenceNumber"], found["events"])
            self.assertGreater(found["events"], 0)
            self.assertLess(found["p50"], found["p99"] + 0.001)
            [event] = await self.json("events", topic, "--reverse", "--limit=1")
            self.assertEqual(event["content"], b64encode(b"x" * 10).decode())
        for words, line in (
            (("--batch=2",), "--batch is for jsonrpc"),
            (("--over=stomp", "--port=1", "--yes"), "no connection to 127.0.0.1:1"),
            (("--url=http://192.0.2.1/b",), "and stay there: give --yes if you want that"),
        ):
            [refusal] = await self.svcbroker("bench", *words, code=2)
            self.assertIn(line, refusal)
        lines = await self.svcbroker("bench", "#", "--yes", code=1)
        self.assertIn("the broker refused", lines[0])

    async def test_topShowsWhatTheBrokerDoes(self) -> None:
        """As lines for programs, and live on a terminal until q is pressed."""
        await self.serve(f"--mqtt={LOCAL}")
        del self.environment["SVCBROKER_URL"]
        where = f"--data-dir={self.dataDir}"
        await self.daemon.call("/rest/open", topic="t")
        isSeen = False

        async def publish() -> None:
            while not isSeen:
                await self.daemon.call("/rest/publish", topic="t", content="x")

        publishing = Deferred.fromCoroutine(publish())
        try:
            [found] = await self.json("top", "--once", "--interval=0.5", where)
        finally:
            isSeen = True
            await publishing
        [group] = found["groups"]
        self.assertEqual((group["id"], group["isReady"], group["running"]), ("1", True, 4))
        self.assertGreater(group["eventRate"], 0)
        self.assertGreater(group["height"], 1)
        self.assertLessEqual(group["p50"], group["p99"])
        self.assertEqual((group["nodes"], found["remarks"]), (["runs"] * 4, []))
        self.assertIn("http", found["connections"])
        lines = await self.svcbroker("top", "--once", "--interval=0.2", where)
        self.assertTrue(lines[1].startswith("group 1  height "), lines)
        self.environment["TERM"] = "xterm"
        top = self.spawn(*COMMAND, "top", where, "--interval=0.2", hasTerminal=True)
        await top.protocol.waitFor("q: quit")
        top.process.write(b"q")
        self.assertEqual(await top.exits(), 0)
        [head, *series] = await self.svcbroker("top", "--history=300", where)
        self.assertIn("a bar for each", head)
        self.assertEqual(len(series), 8)
        [line] = await self.svcbroker("top", "--once", "--metrics=http://127.0.0.1:1/", code=2)
        self.assertIn("no operator.json", line)

    async def test_contextsKeepCredentials(self) -> None:
        """Only for their own broker; a URL that is given is asked without them."""
        accounts = str(self.root / "accounts.toml")
        code, _, errors = await self.outcomeOf(
            *("account", "add", "ann", "--role=everything", "--accounts", accounts),
            stdin=b"secret\n",
        )
        self.assertEqual(code, 0, errors)
        await self.serve("--accounts", accounts)
        (self.root / "password").write_text("secret\n")
        base = self.environment.pop("SVCBROKER_URL")
        account = ("--user=ann", "--password-file=password")
        path = Path(self.environment["XDG_CONFIG_HOME"]) / "svcbroker" / "contexts.toml"
        code, _, errors = await self.outcomeOf(*("context", "add", "mine", "--url", base, *account))
        self.assertEqual(code, 0, errors)
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        self.assertNotIn("secret", path.read_text())
        self.assertEqual(await self.svcbroker("topic", "open", "a"), ["open: a"])
        [line] = await self.svcbroker("topic", "list", "--url", base, code=1)
        self.assertIn("101015", line)
        # Operators' commands use them, too.
        lines = await self.svcbroker("subscription", "list")
        self.assertEqual(lines, ["no durable subscriptions"])
        for words in (
            ("--context=mine",),
            ("--url", base, *account),
            (f"--data-dir={self.dataDir}",),
        ):
            [nodes] = await self.json("nodes", "show", *words)
            self.assertEqual(len(nodes["nodes"]), 4)
        [line] = await self.svcbroker("nodes", "show", "--url", base, code=2)
        self.assertIn("needs --user", line)
        topics = await self.svcbroker("topic", "list", "--url", base, *account)
        self.assertIn("a", topics)
        [context] = await self.json("context", "list")
        self.assertEqual(context["url"], base)
        self.assertEqual(context["password-file"], str(self.root / "password"))
        [line] = await self.svcbroker("topic", "list", "--context=mien", code=2)
        self.assertEqual(
            line, "svcbroker topic list: there is no context 'mien'; did you mean mine?"
        )

    async def test_followersEndQuietly(self) -> None:
        """On Ctrl-C, and when the reader of their output has closed it."""
        await self.serve()
        await self.svcbroker("topic", "open", "a")
        await self.svcbroker("pub", "a", "x")

        def follow(end: Any) -> tuple[int, bytes]:
            with subprocess.Popen(
                [*COMMAND, "sub", "#", "--from=OFFSET_FIRST"],
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            ) as process:
                assert process.stdout is not None and process.stderr is not None
                try:
                    process.stdout.readline()
                    end(process)
                    return process.wait(60), process.stderr.read()
                finally:
                    # Otherwise it would be waited for without end.
                    process.kill()

        def interrupt(process: Any) -> None:
            process.send_signal(signal.SIGINT)

        def closeOutput(process: Any) -> None:
            process.stdout.close()
            subprocess.run(
                [*COMMAND, "pub", "a", "y"], env=self.environment, check=True, capture_output=True
            )

        self.assertEqual(await deferToThread(follow, interrupt), (130, b""))
        self.assertEqual(await deferToThread(follow, closeOutput), (141, b""))

    async def test_refusalsAreOneLine(self) -> None:
        await self.serve()
        for arguments, code, words in (
            (("events", "#", "--template={topc}"), 2, "no field 'topc'; did you mean topic?"),
            (("events", "#", "--since=x"), 2, "--since: 'x' is neither a time"),
            (("events", "#", "--from=1", "--since=1h"), 2, "--from or --since"),
            (("events", "#", "--urll=x"), 2, "--urll not recognized; did you mean --url?"),
            (("events",), 2, "usage: svcbroker events [options] PATTERN"),
            (("topic", "opn"), 2, "svcbroker topic: Unknown command: opn; did you mean open?"),
            (("pub", "a", "x", "--ext=unit"), 2, "'unit' is not NAME=VALUE"),
            (("pub", "a", "x", "--sign=none.pem"), 2, "none.pem: No such file"),
            (("topic", "list", "--url=nonsense"), 2, "'nonsense' is no URL"),
            (("topic", "list", "--url=http://127.0.0.1:1/x", "--timeout=0"), 2, "127.0.0.1:1/x"),
            (("sub", "a", "--url=http://127.0.0.1:1/x", "--timeout=0"), 2, "127.0.0.1:1/x"),
            (
                ("get", "bogus"),
                2,
                "EVENT: 'bogus': event id is malformed; one is such as 7ba3f518-1-2",
            ),
        ):
            [line] = await self.svcbroker(*arguments, code=code)
            self.assertIn(words, line)
