"""`python -m tools.release`: build the sdist and the wheel, check them, and print a checklist. It never uploads.

Exit code 0 where all is well. `--build-only` leaves out what only a release has: a tag, a section of the changelog, and
a fresh environment on each Python (`make package`; `make release` does all).
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.release.checks import Check, repository, sdist, wheel
from tools.release.installed import tried

_ROOT: Final = Path(__file__).parents[2]
_LEFT: Final = """
Left to the releaser:
[ ] make test-rest, make test-table and make versions have passed on this commit
[ ] the name `stratagem` belongs to this project on the package index: the first cell of each notebook installs it
[ ] [project.urls] in pyproject.toml: no public address of the project is known so far, so there are none. Without one,
    README's links to docs/ and examples/ lead nowhere on the page of the package index"""


def pythons(wanted: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the version and path of each Python to try.

    Args:
        wanted: Versions to keep, all where empty.
    """
    found = subprocess.run(["sh", "tools/pythons.sh"], cwd=_ROOT, capture_output=True, text=True, check=True).stdout
    for line in found.splitlines():
        version, path = line.split(" ", 1)
        if not wanted or version in wanted:
            yield f"Python {version}", path


def build(folder: Path) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it; return both.

    Args:
        folder: The folder of built files; those of earlier builds are removed.
    """
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "build", "--outdir", str(folder), str(_ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{done.stdout}{done.stderr}\nThe package cannot be built: see above.")
    return next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))


def twine_check(files: list[Path]) -> Check:
    """Return what twine says of the files.

    Args:
        files: The sdist and the wheel.
    """
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = tuple(done.stdout.strip().splitlines()[-10:])
    return Check("twine check --strict", () if done.returncode == 0 else lines)


def all_checks(source: Path, built: Path, only_built: bool, wanted: list[str]) -> Iterator[Check]:
    """Yield each check when it is done.

    Args:
        source: The sdist.
        built: The wheel.
        only_built: Whether to leave out what only a release has.
        wanted: Versions of Python to try, all where empty.
    """
    version = built.name.split("-")[1]
    if not only_built:
        yield from repository(_ROOT, version)
    yield twine_check([source, built])
    yield from wheel(built)
    yield sdist(source)
    if only_built:
        return
    readme = (_ROOT / "README.md").read_text(encoding="utf-8")
    for python_version, path in pythons(wanted):
        with tempfile.TemporaryDirectory(prefix="stratagem-release-") as folder:
            yield from tried(built, version, path, python_version, readme, Path(folder))


def main() -> int:
    """Build and check; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-only", action="store_true", help="build, and look at the files alone")
    parser.add_argument(
        "--python", action="append", default=[], metavar="3.12", help="try this Python only; repeatable"
    )
    options = parser.parse_args()
    print("Building the sdist, and the wheel from it ...", flush=True)
    source, built = build(_ROOT / "dist")
    failed = 0
    for check in all_checks(source, built, options.build_only, options.python):
        print(check, flush=True)
        failed += not check.is_ok
    print(_LEFT)
    if failed:
        print(f"\n{failed} checks are not ok: nothing to upload.")
        return 1
    version = built.name.split("-")[1]
    if not re.search(r"dev|\+", version):
        print(f"\nTo publish:\n    git push origin v{version}\n    python -m twine upload {source} {built}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
