"""Tells the broker of the carrier."""

from svcbroker.broker.features import FeaturePlugin

line = FeaturePlugin("line_carrier.FEATURE")
