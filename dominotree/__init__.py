"""DominoTree Live: a lossless draft-tree engine (arXiv:2607.08642) and its round traces."""

import os

__version__ = "0.1.0"

# On a CPU that the browser (or anything else) also uses, OpenMP threads that spin at barriers starve each other: on two
# busy cores decoding was eight to ten times slower than with waiting threads. Read once, when torch loads its runtime.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
