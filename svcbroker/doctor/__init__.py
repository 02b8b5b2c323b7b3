"""
The doctor: looks at a broker's configuration, data directory and machine, and says what is wrong
and what to do. Nothing is changed, and no lock is taken: a daemon may be running.

Each subject has a module with a class of facts and a function from these to findings, which looks
at nothing else. C{_machine}, C{_stores} and C{_asking} gather the facts, for L{Examination}.
"""

from ._examining import Examination
from ._findings import Finding, Level

__all__ = ["Examination", "Finding", "Level"]
