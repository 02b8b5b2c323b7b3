"""
The public faces: what others build on stays where it is. Adding a name here is a promise.
"""

from __future__ import annotations

from types import ModuleType

from twisted.trial.unittest import SynchronousTestCase

import svcbroker
from svcbroker import archive, errors, interfaces, ledgers, model, proofs, testing


class FaceTests(SynchronousTestCase):
    """
    Each public module shows exactly these names, and has them.
    """

    def check(self, module: ModuleType, *names: str) -> None:
        """C{module} shows C{names}."""
        shown: list[str] = module.__all__
        self.assertEqual(sorted(shown), sorted(names))
        for name in names:
            self.assertTrue(hasattr(module, name), name)

    def test_interfacesExports(self) -> None:
        """What a ledger is written against."""
        self.check(
            interfaces,
            "TOPIC_ACTIONS",
            "AccountToken",
            "Action",
            "AuthenticatorContext",
            "Batch",
            "BearerToken",
            "ClientCertificate",
            "Decision",
            "GrantLine",
            "IAccountToken",
            "IAuthenticator",
            "IAuthenticatorFactory",
            "IBearerToken",
            "IBlockObserver",
            "IBoundedLedgerFactory",
            "IClientCertificate",
            "IExportableLedger",
            "IFaultyLedger",
            "IGrants",
            "IGroupGrants",
            "ILedger",
            "ILedgerFactory",
            "IMeasuredLedger",
            "INetworkLedger",
            "IProvableLedger",
            "ISubscriber",
            "ISubscription",
            "IValidatorSetLedger",
            "Identity",
            "InvalidDescription",
            "LedgerContext",
            "Quotas",
            "Submission",
            "isDecidedByChain",
            "submit",
            "topicOfEvent",
        )

    def test_modelExports(self) -> None:
        """The values that go through the contracts."""
        self.check(
            model,
            "AUTHOR_KEY_SIZE",
            "LedgerMeasures",
            "MAX_ADMINS",
            "MAX_AUTHORS",
            "MAX_KEY_LENGTH",
            "SIGNATURE_SIZE",
            "AuthorChange",
            "Authorship",
            "AuthorSet",
            "Owner",
            "PRIVATE_PREFIX",
            "RESERVED_NAMES",
            "MAX_ERASED",
            "MAX_RANGES",
            "MAX_REASON",
            "ChainPart",
            "ChangeAuthors",
            "EraseEvents",
            "BEGINNING",
            "EXTENSION_PREFIX",
            "MAX_DELAY",
            "MAX_EXTENSIONS_SIZE",
            "TAG",
            "WEEVENT_PREFIX",
            "Block",
            "BlockRecord",
            "BoundRecord",
            "CloseTopic",
            "ConfigurationReport",
            "Contradiction",
            "Disk",
            "DurablePage",
            "EventFormat",
            "DurableRecord",
            "Edge",
            "Event",
            "EventId",
            "Execution",
            "FaultReport",
            "GroupMeasures",
            "Health",
            "InterfaceType",
            "NodeCondition",
            "Moment",
            "NodeRecord",
            "NodeType",
            "Offset",
            "OpenTopic",
            "Page",
            "Position",
            "PublishEvent",
            "Receipt",
            "Request",
            "SettingRecord",
            "SettingSource",
            "Statistics",
            "SubscribeRequest",
            "SubscriptionRecord",
            "Topic",
            "TransactionRecord",
            "WebhookPage",
            "WebhookStatus",
            "checkContent",
            "checkExtensions",
            "checkFilter",
            "checkTopicName",
            "eventSize",
            "extendRanges",
            "extensionKeyError",
            "filterCovers",
            "filterExpression",
            "filterMatches",
            "filtersOverlap",
            "isIdempotencyKey",
            "isPattern",
            "isPlain",
            "parseOffset",
            "topicPrefix",
        )

    def test_ledgersExports(self) -> None:
        """How ledgers are found and chosen."""
        self.check(
            ledgers,
            "Description",
            "LedgerPlugin",
            "describeLedgers",
            "findLedgerFactories",
            "parseDescription",
            "readDescription",
        )

    def test_archiveExports(self) -> None:
        """What is done with stored chains."""
        self.check(
            archive,
            "BROKER_FILES",
            "COPY_NAME",
            "ERASURE_BYTES",
            "KEYS_NAME",
            "MAX_PART",
            "METADATA_NAME",
            "ROUNDS_ASIDE",
            "STORE_NAME",
            "TREE_BYTES",
            "Audited",
            "AuditedChain",
            "BackedUp",
            "BackupRefused",
            "Begin",
            "BlockVerifier",
            "Certificates",
            "Copy",
            "End",
            "Eraser",
            "ErasureVerifier",
            "Erasing",
            "ExportedHeaders",
            "Finding",
            "Findings",
            "ImportRefused",
            "Imported",
            "LogRefused",
            "LogSource",
            "LogUnreadable",
            "NotCertified",
            "PromotionRefused",
            "Prover",
            "RangeUnknown",
            "Replay",
            "Report",
            "StoredChain",
            "StoredKeys",
            "StreamBroken",
            "StreamReader",
            "StreamWriter",
            "StreamedBlock",
            "VerifiedBlock",
            "appendOf",
            "audit",
            "auditChain",
            "auditDataDirectoryFiles",
            "auditGroup",
            "auditGroupFiles",
            "backUp",
            "checkEnd",
            "exportChain",
            "exportLog",
            "exportPart",
            "groupDirectory",
            "groupsIn",
            "importChain",
            "isSameBody",
            "loadChain",
            "markCopy",
            "promote",
            "takeOver",
            "transferChain",
            "readChain",
            "readCopy",
            "readKeyFiles",
            "refusedName",
            "storedHistory",
            "storedLog",
        )

    def test_testingExports(self) -> None:
        """What the author of a plugin tests it with."""
        self.assertIn("makeLedgerTests", testing.__all__)
        self.assertIn("makeAuthenticatorTests", testing.__all__)
        self.check(testing, *testing.__all__)

    def test_proofsExports(self) -> None:
        """What somebody checks proofs with who has nothing else of ours."""
        self.check(
            proofs,
            "CERTIFIED",
            "MAX_PROOF_SIZE",
            "UNCERTIFIED",
            "VERSIONED",
            "AnyCertificate",
            "AuthorFields",
            "Checkpoint",
            "CheckpointFields",
            "CometCertificate",
            "ConsistencyProof",
            "Contradiction",
            "ContradictionFields",
            "EarlierHeader",
            "EventFields",
            "EventProof",
            "FinalHeader",
            "GenesisFields",
            "HeaderFields",
            "HeaderProof",
            "NodeChange",
            "NodeSignature",
            "PbftCertificate",
            "ProofInvalid",
            "ProvedEvent",
            "ProvedGrowth",
            "ProvedTopic",
            "Side",
            "SignedTree",
            "Statement",
            "TopicFields",
            "TopicProof",
            "WitnessedEvent",
            "WitnessedTopic",
            "blockOfTopic",
            "checkFinal",
            "checkLightBlock",
            "contentFields",
            "contradictionDocument",
            "engineSet",
            "eventFieldsOf",
            "extraOf",
            "formatOf",
            "isEngineCertificate",
            "readCheckpoint",
            "readFields",
            "readGenesis",
            "readStatement",
            "storedCertificate",
            "verifyComplete",
            "verifyConsistency",
            "verifyContradiction",
            "verifyProof",
            "verifyTopic",
            "verifyWitnessed",
            "verifyWitnessedTopic",
        )

    def test_everyErrorIsExported(self) -> None:
        """Every error of the interface's table, each with codes of its own."""
        self.assertEqual(len(errors.TABLE), 39)
        for error in errors.TABLE:
            self.assertIs(getattr(errors, error.__name__), error)
        self.assertEqual(len({error.code for error in errors.TABLE}), len(errors.TABLE))
        self.assertEqual(len({error.rpcCode for error in errors.TABLE}), len(errors.TABLE))

    def test_versionHasThreeNumbers(self) -> None:
        """The package has a version of three numbers."""
        self.assertEqual([part.isdigit() for part in svcbroker.__version__.split(".")], [True] * 3)
