"""DominoTree Live: a lossless draft-tree engine (arXiv:2607.08642) and its round traces."""

import os

__version__ = "0.1.0"

# CPU threads that spin for long at OpenMP barriers starve each other as soon as a browser (or anything else) needs the
# same cores: decoding then ran up to ten times slower. A short spin keeps nearly all of the speed of an idle machine and
# none of that loss (docs/performance.md). GNU OpenMP reads this once, when torch loads it.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
