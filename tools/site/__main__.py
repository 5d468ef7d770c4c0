"""`python -m tools.site`: build the site into build/site, with warnings as errors."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.site import reference
from tools.site.pages import Pages

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site"


def build(target: Path) -> int:
    """Build the site; return the exit code of Sphinx, which is not zero after a warning.

    Sphinx reads pages in processes that it forks, so it has a process of its own: a fork of one in which JAX has
    started may hang, and JAX warns of it.

    Args:
        target: The folder of the site, which is not there yet.
    """
    settings = str(Path(__file__).parent)
    with tempfile.TemporaryDirectory() as name:
        sources = Path(name)
        Pages(ROOT).write(sources)
        reference.write(sources / "reference")
        options = ["-j", "auto", "-b", "html", "-c", settings, "-W", "--keep-going", "-q"]
        command = [sys.executable, "-m", "sphinx", *options, name, str(target)]
        return subprocess.run(command, cwd=ROOT, check=False).returncode


def main() -> int:
    """Build the site in place of the last one, and say where it is."""
    shutil.rmtree(SITE, ignore_errors=True)
    code = build(SITE)
    if code == 0:
        print(f"The site is in {SITE}: open {SITE / 'index.html'}")
    return code


if __name__ == "__main__":
    sys.exit(main())
