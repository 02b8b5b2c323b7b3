"""
C{python -m svcbroker.commands}: the same as the console script.
"""

import sys

from ._main import main

sys.exit(main())
