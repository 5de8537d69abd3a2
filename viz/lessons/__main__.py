"""Print the recorded rounds that lessons show, as ``dominotree record --pops`` takes them."""

from viz.lessons import rounds_shown
from viz.library import Library

for file, rounds in rounds_shown(Library()).items():
    print(f"{file.removesuffix('.json.gz')}:{','.join(map(str, rounds))}")
