"""
C{python -m svcbroker.commands}: the same as the console script.
"""

import sys

from .commandline import main

sys.exit(main())
