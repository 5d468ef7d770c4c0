"""`python -m tools.site`: build the site into build/site, with warnings as errors."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx
from tools.site import reference
from tools.site.pages import Pages

ROOT = Path(__file__).parents[2]


def build(target: Path) -> int:
    """Build the site; return the exit code of Sphinx, which is not zero after a warning.

    Args:
        target: The folder of the site; `sources` beside it holds what it is made from. Both are emptied first.
    """
    sources = target.parent / "sources"
    for folder in (target, sources):
        shutil.rmtree(folder, ignore_errors=True)
    sources.mkdir(parents=True)
    Pages(ROOT).write(sources)
    reference.write(sources / "reference")
    settings = str(Path(__file__).parent)
    return sphinx(["-j", "auto", "-b", "html", "-c", settings, "-W", "--keep-going", "-q", str(sources), str(target)])


def main() -> int:
    """Read the command line, build, and say where the site is."""
    parser = argparse.ArgumentParser(prog="python -m tools.site", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site", help="the folder of the site")
    target = parser.parse_args().out.resolve()
    code = build(target)
    if code == 0:
        print(f"The site is in {target}: open {target / 'index.html'}")
    return code


if __name__ == "__main__":
    sys.exit(main())
