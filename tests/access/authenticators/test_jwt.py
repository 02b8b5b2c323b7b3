"""
The authenticator of tokens.
"""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from twisted.cred.credentials import UsernamePassword

from svcbroker.access.authenticators.jwt import ALGORITHMS, LEEWAY, MAX_TOKEN
from svcbroker.errors import NotAuthenticated
from svcbroker.interfaces import Action, InvalidDescription

from .jwtsupport import EC, RSA, URL, JwtTestCase
from .tokens import AUDIENCE, ISSUER, Key, keySet, someKey


def encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def unsigned(header: Any, claims: Any) -> str:
    return f"{encoded(json.dumps(header).encode())}.{encoded(json.dumps(claims).encode())}."


class TokenTests(JwtTestCase):
    def test_bearersAreWhoTheirTokensSay(self) -> None:
        self.start(keySet(RSA))
        ann = self.bearer(RSA.sign(svcbroker_grants=["publish 1 in/%u", "subscriber"]))
        self.assertEqual(ann.name, "ann")
        self.assertTrue(ann.may(Action.PUBLISH, "1", "in/ann"))
        self.assertFalse(ann.may(Action.PUBLISH, "1", "in/bob"))
        self.assertTrue(ann.may(Action.SUBSCRIBE, "2", "x"))
        self.assertFalse(self.bearer(RSA.sign(sub="bob")).mayAny(Action.SUBSCRIBE, None))

    def test_tokensArePasswordsOfTheirAccounts(self) -> None:
        self.start(keySet(RSA))
        token = RSA.sign().encode()
        for name in (b"ann", b""):
            self.assertEqual(self.login(UsernamePassword(name, token)).name, "ann")
        for name in (b"bob", b"Ann", b"\xff"):
            login = self.access.login(UsernamePassword(name, token), "1")
            self.failureResultOf(login, NotAuthenticated)

    def test_logInsEndWithTheirTokens(self) -> None:
        self.start(keySet(RSA))
        ann = self.bearer(RSA.sign(exp=10))
        self.clock.advance(9.9)
        self.assertFalse(ann.isRevoked)
        self.clock.advance(0.1)
        self.assertTrue(ann.isRevoked)
        self.refused(RSA.sign(exp=10), "expired")

    def test_everyAlgorithmIsVerified(self) -> None:
        kinds = ("ES256", "ES384", "ES512", "ES256K", "EdDSA")
        keys = [RSA, *(someKey(each, each) for each in kinds)]
        self.start(keySet(*keys))
        for algorithm in ALGORITHMS:
            key = next((each for each in keys if each.keyId == algorithm), RSA)
            self.bearer(key.sign(algorithm))
            other = Key(key.keyId, key.algorithm)
            self.refused(other.sign(algorithm), "Signature verification failed")

    def test_tokensForOthersAreRefused(self) -> None:
        self.start(keySet(RSA), issuer=ISSUER)
        self.bearer(RSA.sign(aud=["other", AUDIENCE]))
        for claims, reason in (
            ({"aud": "other"}, "Audience doesn't match"),
            ({"aud": ["other"]}, "Audience doesn't match"),
            ({"aud": None}, 'missing the "aud" claim'),
            ({"aud": 7}, ""),
            ({"iss": "https://other.example.org"}, "Invalid issuer"),
            ({"iss": None}, 'missing the "iss" claim'),
            ({"sub": None}, 'missing the "sub" claim'),
            ({"exp": None}, 'missing the "exp" claim'),
        ):
            self.refused(RSA.sign(**claims), reason)

    def test_malformedClaimsAreRefused(self) -> None:
        self.start(keySet(RSA))
        for claims, reason in (
            ({"exp": 0}, "expired"),
            ({"exp": "1000"}, "exp is no time"),
            ({"exp": True}, "exp is no time"),
            ({"exp": 10**400}, "exp is no time"),
            ({"nbf": float("nan")}, "nbf is no time"),
            ({"nbf": LEEWAY + 1}, "not valid yet"),
            ({"sub": ""}, "sub"),
            ({"sub": "a\nb"}, "sub"),
            ({"sub": "a" * 257}, "sub"),
            ({"svcbroker_grants": {}}, "no list"),
            ({"svcbroker_grants": ["subscriber"] * 201}, "no list"),
            ({"svcbroker_grants": ["fly 1 #"]}, "grants cannot be read"),
            ({"svcbroker_grants": [7]}, "grants cannot be read"),
        ):
            self.refused(RSA.sign(**claims), reason)
        self.bearer(RSA.sign(nbf=LEEWAY))
        self.bearer(RSA.sign(svcbroker_grants="subscriber"))

    def test_anotherClaimHasTheGrants(self) -> None:
        self.start(keySet(RSA), claim="https://example.org/grants")
        more: Any = {"https://example.org/grants": ["everything"]}
        self.assertTrue(self.bearer(RSA.sign(**more)).isEverything)
        self.assertFalse(self.bearer(RSA.sign(svcbroker_grants=["everything"])).isEverything)

    def test_onlyKeyPairsVerify(self) -> None:
        """Neither no signature, nor one by what everybody knows of a key."""
        self.start(keySet(RSA, {"kty": "oct", "k": encoded(b"secret" * 8), "kid": "o"}))
        claims = {"sub": "ann", "aud": AUDIENCE, "exp": 1000}
        for algorithm in ("none", "None", "NONE", "", None, 7, ["RS256"], "HS256", "RS1"):
            for keyId in ("r", "o"):
                token = unsigned({"alg": algorithm, "kid": keyId}, claims)
                self.refused(token)
        public = RSA.private.public_key()
        for secret in (
            public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
            public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
            b"secret" * 8,
        ):
            text = unsigned({"alg": "HS256", "kid": "r", "typ": "JWT"}, claims)[:-1]
            signature = hmac.new(secret, text.encode(), sha256).digest()
            self.refused(f"{text}.{encoded(signature)}", "its algorithm is 'HS256'")

    def test_keysInsideTokensAreNotUsed(self) -> None:
        self.start(keySet(RSA))
        other = Key("x", "RS256")
        for headers in ({"jwk": other.public()}, {"jku": URL}, {"x5u": URL}):
            self.refused(other.sign(headers=headers), "there is no key 'x'")
            self.refused(other.sign(headers={**headers, "kid": "r"}), "verification failed")

    def test_aKeyVerifiesItsOwnAlgorithmsOnly(self) -> None:
        self.start(keySet(RSA.public(alg="RS256"), EC))
        self.bearer(RSA.sign("RS256"))
        self.refused(RSA.sign("PS256"), "there is no key 'r' for PS256")
        self.refused(RSA.sign(headers={"kid": "e"}), "there is no key 'e' for RS256")

    def test_otherAlgorithmsCanBeLeftOut(self) -> None:
        self.start(keySet(RSA, EC), algorithms=("ES256",))
        self.bearer(EC.sign())
        self.refused(RSA.sign(), "its algorithm is 'RS256'")

    def test_aTokenWithoutKeyIdNeedsTheOnlyKey(self) -> None:
        key = Key(None, "ES256")
        self.start(keySet(key, RSA))
        self.bearer(key.sign())
        self.start(keySet(key, EC))
        self.refused(key.sign(), "there is no key None for ES256")

    def test_criticalExtensionsAreRefused(self) -> None:
        self.start(keySet(RSA))
        criticals: tuple[dict[str, Any], ...] = (
            {"crit": ["b64"], "b64": False},
            {"crit": ["exp"]},
            {"crit": []},
        )
        for headers in criticals:
            self.refused(RSA.sign(headers=headers))

    def test_otherTextsAreRefused(self) -> None:
        self.start(keySet(RSA))
        token = RSA.sign()
        head, body, signature = token.split(".")
        for text in (
            *("", ".", "..", "a.b.c", "svct_secret", token + ".", f"{head}.{body}", "é.é.é"),
            *(f"{head}.{body}.", f"{body}.{body}.{signature}", f"{head}.{head}.{signature}"),
            f"{encoded(b'[' * 5000)}.{body}.{signature}",
            f"{encoded(b'7')}.{body}.{signature}",
            unsigned({"alg": "RS256", "kid": ["r"]}, {})[:-1] + signature,
            f"{token}{'A' * MAX_TOKEN}",
            "\udc80.\udc80.\udc80",
        ):
            self.refused(text)

    @given(st.data())
    def test_changedTokensAreRefused(self, data: st.DataObject) -> None:
        self.start(keySet(EC))
        text = EC.sign(svcbroker_grants=["subscriber"])
        at = data.draw(st.integers(0, len(text) - 2))
        # The last character of a part has bits that mean nothing.
        if text[at + 1] == ".":
            at -= 1
        character = data.draw(st.characters(codec="ascii").filter(lambda each: each != text[at]))
        self.refused(text[:at] + character + text[at + 1 :])


class DescriptionTests(JwtTestCase):
    """
    Descriptions, and keys in a file.
    """

    def setUp(self) -> None:
        super().setUp()
        self.file = Path(self.mktemp()).absolute()
        self.file.write_bytes(keySet(RSA))

    def make(self, description: str) -> Any:
        return self.configure(description)(self.context)

    def test_keysOfAFileAreReadInTheThread(self) -> None:
        self.use(self.make(f"jwt:jwks={self.file}:audience={AUDIENCE}:issuer=https\\://x"))
        self.assertEqual(len(self.calls), 1)
        self.bearer(RSA.sign(iss="https://x"))
        self.refused(RSA.sign(), "Invalid issuer")

    def test_keysOfAFileAreReadAgain(self) -> None:
        self.use(self.make(f"jwt:jwks={self.file}:audience={AUDIENCE}:algorithms=ES256,RS256"))
        self.file.write_bytes(keySet(EC))
        self.successResultOf(self.access.reload())
        self.bearer(EC.sign())
        self.refused(RSA.sign())

    def test_aFileWithAnErrorChangesNothing(self) -> None:
        self.use(self.make(f"jwt:jwks={self.file}:audience={AUDIENCE}"))
        self.file.write_bytes(b"{}")
        failure = self.failureResultOf(self.access.reload(), InvalidDescription)
        self.assertIn(f"{self.file} is not a key set", str(failure.value))
        self.bearer(RSA.sign())

    def test_aFileThatCannotBeReadIsNamed(self) -> None:
        authenticator = self.make("jwt:jwks=nosuch:audience=x")
        failure = self.failureResultOf(authenticator.start(), InvalidDescription)
        self.assertIn("nosuch: No such file or directory", str(failure.value))

    def test_urlsAreReadFromDescriptions(self) -> None:
        for url in (URL, "http://127.0.0.1:8000/keys?a=b", "http://[::1]/", "http://localhost/k"):
            escaped = url.replace(":", "\\:")
            self.make(f"jwt:jwks={escaped}:audience=x").stop()

    def test_descriptionsAreChecked(self) -> None:
        for text, reason in (
            ("jwt", "jwks is needed"),
            ("jwt:jwks=x", "audience is needed"),
            ("jwt:jwks=https://x:audience=y", "a colon in a value \\:"),
            ("jwt:jwks=http\\://id.example.org/keys:audience=x", "one with http on loopback"),
            ("jwt:jwks=ftp\\://x/:audience=x", "a URL with https"),
            ("jwt:jwks=https\\://u@x/:audience=x", "a URL with https"),
            ("jwt:jwks=https\\://x\\:0/:audience=x", "a URL with https"),
            ("jwt:jwks=https\\://x\\:y/:audience=x", "a URL with https"),
            ("jwt:jwks=https\\:///:audience=x", "a URL with https"),
            ("jwt:jwks=:audience=x", "a file's path"),
            ("jwt:jwks=x:audience=", "audience: '' is not a text"),
            ("jwt:jwks=x:audience=y:algorithms=HS256", "algorithms: 'HS256' is not a list of"),
            ("jwt:jwks=x:audience=y:algorithms=none", "algorithms: 'none' is not a list of"),
            ("jwt:jwks=x:audience=y:algorithm=RS256", "algorithm: the jwt authenticator has no"),
        ):
            error = self.assertRaises(InvalidDescription, self.configure, text)
            self.assertIn(reason, str(error))
