"""
Tests for L{svcbroker.commands.doctor}.
"""

from __future__ import annotations

import errno
import os
from base64 import b64encode
from pathlib import Path

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.commands.doctor import BrokerCheck
from svcbroker.commands.doctor.endpointchecks import ServerAnswer, alarmFindings
from svcbroker.daemon.alarms import NOT_READY
from svcbroker.daemon.config import makeConfig
from svcbroker.net.alarms import Alarm
from svcbroker.net.findings import Finding, Level, problem
from svcbroker.operations import alarmResults
from tests.certificates import makeCertificate

from .test_datachecks import MADE


class BrokerCheckTests(SynchronousTestCase):
    """
    The whole check, with the real machine and no network.
    """

    def setUp(self) -> None:
        self.root = Path(self.mktemp()).absolute()
        self.root.mkdir()

    def check(self, **settings: object) -> dict[str, list[Finding]]:
        """The findings of settings, by subject."""
        given = {name.replace("_", "-"): value for name, value in settings.items()}
        ports = dict.fromkeys(("http", "stomp", "mqtt"), "")
        config = makeConfig(ports, {"data-dir": str(self.root / "data")}, given)
        found: dict[str, list[Finding]] = {}
        check = BrokerCheck(config=config, now=MADE, ask=lambda *given: None)
        for each in check.findings():
            found.setdefault(each.subject, []).append(each)
        return found

    def test_nothingIsWritten(self) -> None:
        self.check(http="tcp:0:interface=127.0.0.1")
        self.assertEqual(list(self.root.iterdir()), [])

    def test_mistakesOfAllPartsAreFound(self) -> None:
        found = self.check(
            http="nonsense",
            ledger="pbtf",
            accounts=str(self.root / "none"),
            webhook_secret_file=str(self.root / "none"),
        )
        texts = [each.text for each in found["configuration"] if each.level is Level.PROBLEM]
        self.assertEqual(
            [text.partition(":")[0] for text in texts],
            ["http", "accounts", "ledger", "webhook-secret-file"],
        )

    def test_endpointBehindAProxyOnLoopbackNeedsNoTLS(self) -> None:
        path = self.root / "accounts.toml"
        path.write_text('[accounts.ann]\nroles = ["operator"]\n')
        (found,) = self.check(mqtt="haproxy:tcp:0:interface=127.0.0.1", accounts=str(path))["mqtt"]
        self.assertIs(found.level, Level.GOOD)

    def test_passwordFilesOfMosquittoAreRead(self) -> None:
        path = self.root / "passwords"
        text = f"mosquitto:passwords={path}:acl={self.root / 'acl'}"
        [found] = self.check(auth=[text])["accounts"]
        self.assertIs(found.level, Level.PROBLEM)
        self.assertIn(f"cannot read {path}", found.text)
        path.touch(0o600)
        digest = b64encode(bytes(64)).decode("ascii")
        path.write_text(f"ann:$7$101$AAAA${digest}\nbob:$7$210000$AAAA${digest}\n")
        for auth in ([text], [text, "mosquitto:passwords=", "nonsense"]):
            [found] = self.check(auth=auth)["accounts"]
            self.assertIs(found.level, Level.WARNING)
            self.assertIn("iterations: of ann", found.text)

    def test_socketsOfSystemdAreKnown(self) -> None:
        (found,) = self.check(http="systemd:name=http")["http"]
        self.assertIn("systemctl list-sockets", found.text)

    def test_certificatesOfEndpointsAreRead(self) -> None:
        key, certificate = makeCertificate(self.root)
        key.chmod(0o644)
        text = f"ssl:0:privateKey={key}:certKey={certificate}:interface=127.0.0.1"
        found = self.check(mqtt=text, advertise="other.example:8883")["mqtt"]
        self.assertEqual(
            [each.level for each in found],
            [Level.GOOD, Level.WARNING, Level.WARNING, Level.PROBLEM],
        )
        self.assertIn("not for other.example", found[2].text)
        self.assertIn(f"the private key in {key}", found[3].text)

    def test_enginesHomeIsRead(self) -> None:
        home = self.root / "engine"
        (home / "config").mkdir(parents=True)
        (home / "config/config.toml").write_text(
            f'proxy_app = "unix://{home}/abci.sock"\n[rpc]\nladdr = "tcp://0.0.0.0:26657"\n'
        )
        (home / "config/priv_validator_key.json").write_text("{}")
        found = self.check(ledger=f"cometbft:home={home}")["engine of group 1"]
        self.assertEqual([each.level for each in found], [Level.PROBLEM, Level.WARNING])
        (found,) = self.check(ledger=f"cometbft:home={home}/x")["engine of group 1"]  # type: ignore[assignment]

    def test_errorOfOneSubjectIsAFinding(self) -> None:
        (self.root / "data").symlink_to(self.root / "data")
        found = self.check()
        (error,) = found["data directory"]
        self.assertIn(os.strerror(errno.ELOOP), error.text)
        self.assertIn("software", found)

    def test_alarmsOfTheDaemonAreFindings(self) -> None:
        alarm = Alarm(condition=NOT_READY, text="no quorum", group="1", since=86400.0)
        value = {"code": 0, "data": msgspec.to_builtins(alarmResults([alarm]))}
        (found,) = alarmFindings(ServerAnswer(value=value))
        self.assertEqual(
            found,
            problem(
                "alarm not-ready",
                "group 1: no quorum, since 1970-01-02 00:00 UTC",
                NOT_READY.meaning,
                NOT_READY.remedy,
            ),
        )
        for other in (None, ServerAnswer(value=[1]), ServerAnswer(value={"data": [{}]})):
            self.assertEqual([*alarmFindings(other)], [])
