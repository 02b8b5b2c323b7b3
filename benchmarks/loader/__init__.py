"""
The load: C{*.c} is the program that drives it, L{drive} has it do so.

 1. connections are made and greeted here, in Python, and handed over to the program
 2. so are the requests, as frames that are encoded beforehand
 3. for some seconds the program keeps requests under way on all of them, and checks every answer
"""

from svcbroker.commands.bench import Measured, allowFiles

from ._drive import connect, connected, drive, driveOn
from ._plan import Load, Protocol, encodePlan

__all__ = [
    "Load",
    "Measured",
    "Protocol",
    "allowFiles",
    "connect",
    "connected",
    "drive",
    "driveOn",
    "encodePlan",
]
