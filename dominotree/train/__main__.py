import sys

from dominotree.train.cli import main

sys.exit(main())
