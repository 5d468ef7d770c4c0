"""Settings of Sphinx for the site: Markdown by MyST, docstrings in Google's style, the theme Furo."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import stratagem

HERE = Path(__file__).parent

project = "Stratagem"
author = "The Stratagem authors"
copyright = author
release = stratagem.__version__.partition("+")[0]
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
templates_path: list[str] = []
myst_heading_anchors = 4  # the anchors that GitHub makes, which the pages link to
myst_enable_extensions = ["strikethrough"]
default_role = "py:obj"  # `MirroredStrategy` in a docstring leads to its page
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
python_display_short_literal_types = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
add_module_names = False
toc_object_entries = False
copybutton_exclude = ".linenos, .gp, .go"
html_theme = "furo"
html_title = f"Stratagem {release}"
html_static_path = [str(HERE / "static")]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"

_CODE = re.compile(r"`([^`]+)`")
_GUIDE = re.compile(r"\bdocs/(\w+)\.md\b")
_NAME = re.compile(r"[\w.]+")


def as_rst(line: str) -> str:
    """Return a line of a docstring in the markup that Sphinx reads: code, stars and names of guides are marked.

    Args:
        line: A line of text, with code in single backticks, as in Markdown.

    Example:
        >>> as_rst("See docs/data.md for `shuffle(3)`.")
        'See :doc:`the guide </data>` for ``shuffle(3)``.'
    """
    parts = _CODE.split(line)
    for place, part in enumerate(parts):
        if place % 2:
            code = f"`{part}`" if _NAME.fullmatch(part) else f"``{part}``"
            parts[place] = f"{code}\\ " if parts[place + 1][:1].isalnum() else code
        else:
            parts[place] = _GUIDE.sub(r":doc:`the guide </\1>`", part.replace("*", "\\*"))
    return "".join(parts)


def mark_up(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Mark up a docstring before it is parsed, but for its examples."""
    if what == "property" and lines:
        lines[0] = lines[0].replace(": ", " - ")  # napoleon takes words before a colon for a type
    is_example = False
    for place, line in enumerate(lines):
        is_example = bool(line.strip()) and (is_example or line.lstrip().startswith(">>>"))
        lines[place] = line if is_example else as_rst(line)


def setup(app: Any) -> None:
    """Connect what docstrings go through, before napoleon reads their sections. Sphinx calls it."""
    app.connect("autodoc-process-docstring", mark_up, priority=400)
