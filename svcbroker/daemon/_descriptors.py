"""
How many files and connections the process may have open.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Final

WANTED_FILES: Final = 65_536
"""What is asked for where there is no lower bound: a connection takes one."""


def raiseFileLimit(
    get: Callable[[int], tuple[int, int]] = resource.getrlimit,
    set: Callable[[int, tuple[int, int]], None] = resource.setrlimit,
) -> int:
    """
    Have as many files open as the operator's hard limit allows, up to L{WANTED_FILES}. Most
    systems give a process 1,024 until it asks. A limit that is higher stays.

    @param get: asks for the limits: C{resource.getrlimit}.
    @param set: sets them: C{resource.setrlimit}.
    @return: the limit from now on, or C{resource.RLIM_INFINITY}.
    """
    soft, hard = get(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, WANTED_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    set(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted
