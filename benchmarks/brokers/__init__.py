"""
What is measured: svcbroker, and the brokers and servers of others where they are installed, as
children. Each start raises L{Missing} where there is none, and says how to install it.
"""

from ._broker import TOPIC, Broker
from ._daemon import startDaemon
from ._hello import startBare, startGo, startNode
from ._mosquitto import startMosquitto
from ._nats import startNats
from ._rabbit import startRabbit
from ._redis import startRedis

__all__ = [
    "TOPIC",
    "Broker",
    "startBare",
    "startDaemon",
    "startGo",
    "startMosquitto",
    "startNats",
    "startNode",
    "startRabbit",
    "startRedis",
]
