"""
Tests of the real daemon, as a process of its own, from outside.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in a job in the background of a shell. Programs that tests start would ignore Ctrl-C, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
