"""
The advice of the page of errors: a sentence or two of reStructuredText for each error, about how a
user gets on. Everything else on that page is read from the code.
"""

from __future__ import annotations

from svcbroker import errors

ADVICE: dict[type[errors.BrokerError], str] = {
    errors.TopicNotFound: """
        Look at the spelling, and at the group. A topic has to be opened before anything is
        published to it: ``svcbroker topic open NAME``. MQTT opens it by itself unless
        ``--no-mqtt-open-topics`` is set. Where there are accounts, a topic that the account may
        not know of looks the same.
        """,
    errors.TopicTooLong: "Choose a shorter name. Clients of the dialect of WeEvent have 64.",
    errors.TopicBlank: "Name a topic. In a URL, look for an empty variable in ``topic=$TOPIC``.",
    errors.PageIndexInvalid: "Pages of ``list`` are counted from 0, those of admin queries from 1.",
    errors.TopicInvalid: """
        Use characters from space to U+0080, without ``+`` and ``#``: those are for patterns, and
        patterns are for subscriptions. Write umlauts and other scripts into the content.
        """,
    errors.PageSizeInvalid: "Ask for a number of entries, such as 10.",
    errors.PatternInvalid: """
        ``#`` stands alone or after the last ``/``, ``+`` alone between two ``/``. A pattern
        has at most 128 levels (:doc:`subscriptions`).
        """,
    errors.ContentBlank: """
        Send at least one byte. To say that something has no value any more, publish a word for it,
        such as ``null``.
        """,
    errors.ContentTooLarge: """
        Publish a reference and the SHA-256 of what is large, and keep the file elsewhere. Or the
        operator sets ``--max-content`` higher (:doc:`operations`).
        """,
    errors.ExtensionsTooLarge: "Move what is long from the extensions into the content.",
    errors.ExtensionKeyInvalid: """
        Begin the key with ``svc-``, with what follows in your own words. Some names are the
        broker's (:ref:`publish-parameters`). Keys with ``weevent-`` need
        ``--dialect weevent-1.1`` and its path.
        """,
    errors.QueryTooLong: "Send the same parameters in the body of a POST.",
    errors.IdempotencyConflict: """
        Make a new key for each new event, and keep the key only while you repeat the same one. If
        the message names an erased event, the event was published once, and nothing has to be
        done. Where there are no accounts, all clients share their keys, so use UUIDs.
        """,
    errors.SequenceConflict: """
        Somebody has published before you. Read the topic from the number in the message, decide
        anew, and publish with the new number.
        """,
    errors.SignatureInvalid: """
        Sign again, over exactly what is sent: chain, topic, content, all extensions and the key.
        A carrier may add extensions by itself (:ref:`signed-extensions`). All three of ``author``,
        ``signature`` and ``signedAt`` are needed.
        """,
    errors.AuthorRefused: """
        Sign with a key of the topic's authors, which ``state`` shows, or ask one of its admins to
        add yours (:doc:`authorship`).
        """,
    errors.EventIdBlank: "Name an event, such as ``7ba3f518-2-3``.",
    errors.EventIdTooLong: "Send the id as the broker gave it, without anything around it.",
    errors.EventIdInvalid: """
        Send the id as the broker gave it: eight hex digits, the number and the height, with ``-``
        in between. An offset may also be ``OFFSET_FIRST`` or ``OFFSET_LAST``.
        """,
    errors.EventNotFound: """
        Look at the group and at the topic: an id belongs to one chain. If the id was answered by a
        broker of the same chain, this one may have been restored from an older backup: ask its
        operator.
        """,
    errors.HeightUnknown: """
        The id is of another chain, or this broker was restored from a backup that is older than
        the event. On a network, name the event with ``after`` and the node waits for its block
        (:doc:`consistency`).
        """,
    errors.EventErased: """
        The content is gone for good, on purpose. The answer says when it was erased, by whom and
        why (:doc:`authorship`). Go on with the next event; ask for tombstones to see erased ones.
        """,
    errors.EventHeld: """
        A hold keeps the events from being erased, and the message names its case: ``svcbroker
        admin hold list CASE`` says who asked for it and why (:ref:`holds`). Leave the events out,
        by ``--except-held``, or have the case released by an account with the grant ``hold``.
        """,
    errors.UrlInvalid: """
        Give an ``http`` or ``https`` URL of a public address. An address inside your network has
        to be allowed by the operator: ``--webhook-allow`` (:doc:`webhooks`).
        """,
    errors.SubscriptionIdBlank: "Name the subscription, with the id that ``subscribe`` answered.",
    errors.SubscriptionNotFound: """
        It was ended, it has expired, or it is of another account. List yours, and subscribe again
        from the last event that you have seen.
        """,
    errors.SubscriptionIdInvalid: "Send the UUID that ``subscribe`` answered.",
    errors.SubscriptionExists: """
        Another client uses the id, perhaps an earlier one of yours that has not ended. Wait until
        it is closed, or choose another id.
        """,
    errors.ParameterInvalid: "The message names the parameter and what is allowed.",
    errors.NotAuthenticated: """
        Send a user name and a password, a token or a client certificate (:doc:`accounts`). After
        five failures, answers to your address take longer.
        """,
    errors.NotAuthorized: """
        The message says which grant is missing. An operator adds it to a role of the account and
        runs ``svcbroker admin reload``; ``svcbroker admin account may`` says what a grant gives.
        """,
    errors.Overloaded: """
        Nothing was done. Wait, and send it again: after the seconds of ``Retry-After``, where
        there is one. If it comes often, publish in batches, or ask the operator to look at
        :doc:`budgets` and at the limits of the account.
        """,
    errors.TransactionTimeout: """
        The event may be in the log or not. Send it again **with the same idempotency key**: then
        it is published once (:doc:`authorship`). Without a key, look whether it is there first.
        """,
    errors.TransactionFailed: """
        Send it again once. If it fails again, the log of the broker says why the chain refused it.
        """,
    errors.UnknownError: """
        This is a fault of the broker. Tell its operator the incident id of the message: the log
        has the cause under it. Whether something was done is not known.
        """,
    errors.NoSuchCall: """
        Look at the path or the method; :doc:`interface` has all of them. Behind a proxy, look
        whether it keeps the base path, ``/svcbroker``.
        """,
    errors.GroupUnknown: "``listGroup`` names the groups. The default is 1.",
    errors.LedgerUnavailable: """
        Nothing was done. Send it again after a while. The operator looks at ``/readyz``, at the
        free space of the disk and at ``svcbroker doctor``.
        """,
    errors.NodeBehind: """
        Nothing was done. Send it again after the seconds of ``Retry-After``, here or to another
        node. If one node stays behind, its operator looks at ``/readyz`` and the log.
        """,
}
"""The advice for each error of the table."""
