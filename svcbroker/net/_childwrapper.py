"""
The wrapper of a child process: it gives the program a session of its own, and ends it when the
process that started it is gone.

Not imported, and so a module of its own: it is run by its path, and becomes the program that its
arguments name.

A module of its own: it is run as a program.
"""

import os
import signal
import sys

_PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    # A terminal interrupts all processes of its group at once. The parent has still to answer what
    # it accepted, and ends this one afterwards.
    os.setsid()
    if sys.platform == "linux":
        import ctypes

        # A parent that is killed cannot end its children.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    os.execv(sys.argv[1], sys.argv[1:])
