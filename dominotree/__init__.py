"""DominoTree Live: a lossless draft-tree engine (arXiv:2607.08642) and its round traces."""

__version__ = "0.1.0"
