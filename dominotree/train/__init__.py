"""How the shipped drafters were made, rerunnable: ``python -m dominotree.train --help`` and docs/training.md."""
