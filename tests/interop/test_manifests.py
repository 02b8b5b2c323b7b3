"""
The manifest for Kubernetes and the file of Compose: their schemas accept them, and they are true of
the daemon and of the image.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import treq
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.daemon.config import makeConfig
from tests.functional.daemon import LOCAL, TIMEOUT, DaemonTestCase
from tests.needed import needPackage

DEPLOY = Path(__file__).parents[2] / "deploy"
MANIFEST = DEPLOY / "kubernetes/svcbroker.yaml"
COMPOSE = DEPLOY / "container/compose.yaml"
CONTAINERFILE = DEPLOY / "container/Containerfile"
VERSIONS = ("1.29.0", "1.37.0")
"""The oldest and the newest Kubernetes whose schema is asked."""


def imported(name: str) -> Any:
    """A package of the extra interop."""
    needPackage(name, "interop")
    return import_module(name)


def manifest() -> dict[str, Any]:
    """The objects of the manifest, by their kinds."""
    yaml = imported("yaml")
    return {each["kind"]: each for each in yaml.safe_load_all(MANIFEST.read_text("utf-8"))}


def container() -> dict[str, Any]:
    """The one container of the manifest."""
    [found] = manifest()["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    result: dict[str, Any] = found
    return result


def configuration() -> dict[str, Any]:
    """The configuration that the manifest has for the broker."""
    return tomllib.loads(manifest()["ConfigMap"]["data"]["svcbroker.toml"])


class SchemaTests(SynchronousTestCase):
    """
    What the schemas of others say.
    """

    def test_kubernetesKnowsEachField(self) -> None:
        """Unknown fields are refused, too."""
        validate = imported("kubernetes_validate").validate
        for version in VERSIONS:
            for each in manifest().values():
                validate(each, version, strict=True)

    def test_unknownFieldIsRefused(self) -> None:
        """The schema is looked at."""
        module = imported("kubernetes_validate")
        wrong = manifest()["Service"]
        wrong["spec"]["port"] = 80
        with self.assertRaises(module.ValidationError):
            module.validate(wrong, VERSIONS[0], strict=True)

    def test_composeKnowsEachField(self) -> None:
        """The schema of the Compose specification, which has no unknown fields either."""
        needPackage("check_jsonschema", "interop")
        path = files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json"
        schema = json.loads(path.read_text("utf-8"))
        validator = imported("jsonschema.validators").validator_for(schema)(schema)
        text = imported("yaml").safe_load(COMPOSE.read_text("utf-8"))
        self.assertEqual([error.message for error in validator.iter_errors(text)], [])
        text["services"]["svcbroker"]["restarts"] = "always"
        self.assertEqual(len(list(validator.iter_errors(text))), 1)


class TruthTests(SynchronousTestCase):
    """
    The manifest beside the image and the daemon.
    """

    def test_thereIsOneBrokerOnItsOwnDisk(self) -> None:
        """Two would begin two chains, or wait for one lock."""
        spec = manifest()["StatefulSet"]["spec"]
        self.assertEqual(spec["replicas"], 1)
        [claim] = spec["volumeClaimTemplates"]
        self.assertEqual(claim["spec"]["accessModes"], ["ReadWriteOncePod"])
        [mount] = [each for each in container()["volumeMounts"] if each["name"] == "data"]
        self.assertTrue(configuration()["data-dir"].startswith(mount["mountPath"] + "/"))

    def test_stopIsNotCutShort(self) -> None:
        """Both wait longer than the daemon does."""
        config = makeConfig(configuration())
        yaml = imported("yaml")
        period = yaml.safe_load(COMPOSE.read_text())["services"]["svcbroker"]["stop_grace_period"]
        spec = manifest()["StatefulSet"]["spec"]["template"]["spec"]
        self.assertGreater(spec["terminationGracePeriodSeconds"], config.shutdownTimeout)
        self.assertGreater(int(period.removesuffix("s")), config.shutdownTimeout)

    def test_userIsThatOfTheImage(self) -> None:
        """And the files are found where they are mounted."""
        text = CONTAINERFILE.read_text("utf-8")
        found = re.search(r"^USER (\d+):(\d+)$", text, re.MULTILINE)
        assert found is not None
        context = manifest()["StatefulSet"]["spec"]["template"]["spec"]["securityContext"]
        self.assertEqual(
            (context["runAsUser"], context["runAsGroup"], context["fsGroup"]),
            (int(found[1]), int(found[2]), int(found[2])),
        )
        paths = {each["mountPath"] for each in container()["volumeMounts"]}
        self.assertIn('"/etc/svcbroker/svcbroker.toml"', text)
        self.assertIn("/etc/svcbroker/svcbroker.toml", paths)
        self.assertIn(str(Path(configuration()["accounts"]).parent), paths)

    def test_portsAreThoseOfTheBroker(self) -> None:
        """In the container and in the service."""
        config = configuration()
        ports = {each["name"]: each["containerPort"] for each in container()["ports"]}
        self.assertEqual(
            {name: f"tcp:{port}" for name, port in ports.items()},
            {name: config[name] for name in ports},
        )
        service = manifest()["Service"]["spec"]["ports"]
        self.assertEqual({each["name"]: each["port"] for each in service}, ports)


class RunningTests(DaemonTestCase):
    """
    The daemon with the configuration of the manifest, and files as Kubernetes mounts them.
    """

    async def test_probesNeedNoAccountAndTheStopIsInOrder(self) -> None:
        """The accounts are links to a file that the daemon may only read."""
        probes = [
            container()[f"{each}Probe"]["httpGet"] for each in ("startup", "liveness", "readiness")
        ]
        accounts = self.root / "accounts"
        (accounts / "..data_1").mkdir(parents=True)
        (accounts / "..data").symlink_to("..data_1")
        (accounts / "accounts.toml").symlink_to("..data/accounts.toml")
        made = accounts / "..data_1" / "accounts.toml"
        code, _, errors = await self.outcomeOf(
            *("account", "add", "ann", "--role", "everything", "--accounts", made),
            stdin=b"correct horse\n",
        )
        self.assertEqual(code, 0, errors)
        made.chmod(0o440)
        config = self.root / "svcbroker.toml"
        text = manifest()["ConfigMap"]["data"]["svcbroker.toml"]
        text = text.replace("/etc/svcbroker/accounts", str(accounts))
        text = text.replace("/var/lib/svcbroker", str(self.root)).replace("tcp:8080", LOCAL)
        config.write_text(text.replace("tcp:1883", LOCAL))
        run = ("-m", "svcbroker.commands", "run", "--config", config)
        daemon = self.spawn(sys.executable, *run)
        found = await daemon.protocol.waitFor(r"serves ([^/]+)/")
        for probe in probes:
            self.assertEqual(probe["port"], "http")
            response = await treq.get(
                f"http://{found[1]}{probe['path']}", pool=daemon.pool, timeout=TIMEOUT
            )
            self.assertEqual(response.code, 200)
            await response.content()
        self.assertEqual(await daemon.stop(), 0)
