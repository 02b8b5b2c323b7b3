"""
The fast door: plain requests for the calls that are asked most, answered without twisted.web.

C{_heads} says which requests are plain, C{_calls} what they may ask, C{_answers} what the answers
look like. C{_channel} is the connection, the only module that knows a transport.
"""

from ._answers import Answers
from ._calls import HotCall, hotCalls
from ._channel import Door, DoorChannel

__all__ = ["Answers", "Door", "DoorChannel", "HotCall", "hotCalls"]
