"""
Publishing with spans.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from ..access import Principal
from ..net.budgets import WorkBudget
from ..net.tracing import Tracer
from ._groups import Groups, Limits
from ._publication import DEFAULT_POLICY, Publication, PublishBatch, PublishPolicy
from ._publishing import Publishing
from ._values import PublishOutcome


class TracedPublishing(Publishing):
    """
    Publishing that tells a tracer of each call, from its acceptance to its answers. A broker
    without a tracer publishes without this class, so that it pays nothing.
    """

    def __init__(
        self,
        groups: Groups,
        limits: Limits,
        clock: IReactorTime,
        work: WorkBudget,
        tracer: Tracer,
    ) -> None:
        super().__init__(groups, limits, clock, work)
        self._tracer = tracer

    def publishOne(
        self, principal: Principal, publication: Publication
    ) -> Deferred[PublishOutcome]:
        """See L{Publishing.publishOne}."""
        span = self._tracer.publishing(DEFAULT_POLICY.carrier, (publication,))
        done = super().publishOne(principal, publication)
        return done if span is None else done.addBoth(span.end)

    def publish(
        self, principal: Principal, publications: Sequence[Publication], policy: PublishPolicy
    ) -> PublishBatch:
        """See L{Publishing.publish}."""
        span = self._tracer.publishing(policy.carrier, publications)
        batch = super().publish(principal, publications, policy)
        if span is not None:
            batch.done.addBoth(span.end)
        return batch
