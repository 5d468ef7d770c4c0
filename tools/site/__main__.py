"""`python -m tools.site`: build the site into build/site, with warnings as errors."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from sphinx.cmd.build import main as sphinx
from tools.site import reference
from tools.site.pages import Pages

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site"


def build(target: Path) -> int:
    """Build the site; return the exit code of Sphinx, which is not zero after a warning.

    Args:
        target: The folder of the site, which is not there yet.
    """
    settings = str(Path(__file__).parent)
    with tempfile.TemporaryDirectory() as name:
        sources = Path(name)
        Pages(ROOT).write(sources)
        reference.write(sources / "reference")
        return sphinx(["-j", "auto", "-b", "html", "-c", settings, "-W", "--keep-going", "-q", name, str(target)])


def main() -> int:
    """Build the site in place of the last one, and say where it is."""
    shutil.rmtree(SITE, ignore_errors=True)
    code = build(SITE)
    if code == 0:
        print(f"The site is in {SITE}: open {SITE / 'index.html'}")
    return code


if __name__ == "__main__":
    sys.exit(main())
