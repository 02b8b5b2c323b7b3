"""
svcbroker: a publish/subscribe event broker that stores events on a blockchain.
"""

__version__ = "0.1.0"
