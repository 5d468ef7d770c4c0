"""One part of the suite, in a process of its own, for suite.py alone: `part.py SCRIPT ANSWER PLOTS`.

It calls `figures` of the file SCRIPT, which may draw in the folder PLOTS, and writes what that returns as JSON into the
file ANSWER. The cores of a process and its virtual devices are chosen once, so no two scripts share one.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from pathlib import Path

if __name__ == "__main__":
    script, answer, plots = map(Path, sys.argv[1:])
    sys.path.insert(0, str(script.parent))
    found = importlib.import_module(script.stem).figures(plots)
    answer.write_text(json.dumps([dataclasses.asdict(figure) for figure in found]))
