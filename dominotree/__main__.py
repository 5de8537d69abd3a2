"""``python -m dominotree``: the command line without its script."""

import sys

from dominotree.cli import main

sys.exit(main())
