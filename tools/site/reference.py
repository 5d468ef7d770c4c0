"""Reference of all public names: a page for each module, and one for each class and function with its docstring."""

from __future__ import annotations

import ast
import importlib
import inspect
import types
from pathlib import Path
from typing import Any, Final, NamedTuple

from tools.site.members import is_ours, options_of

import stratagem
import stratagem.tf

_TENSORFLOW: Final = "https://www.tensorflow.org/api_docs/python/tf"
_KERAS: Final = (
    "Keras's own module, with the backend JAX: `from stratagem import keras` is `import keras` with "
    "`KERAS_BACKEND=jax`. Its names are in [Keras's reference](https://keras.io/api/)."
)
_TF: Final = (
    "Names of TensorFlow 2, on JAX and Keras 3: `import stratagem.tf as tf`. Each name leads to TensorFlow's page. "
    "[The guide](../tensorflow.md) says what differs."
)


class Name(NamedTuple):
    """A public name.

    Args:
        module: The module that users import it from.
        name: The name in it.
        value: What it stands for.
    """

    module: str
    name: str
    value: Any

    @property
    def path(self) -> str:
        """The name with its module, as users write it."""
        return f"{self.module}.{self.name}"

    @property
    def directive(self) -> str:
        """Sphinx's directive for it."""
        if inspect.isclass(self.value):
            return "autoexception" if issubclass(self.value, BaseException) else "autoclass"
        return "autofunction"

    @property
    def summary(self) -> str:
        """The first sentence of its docstring; of a value, the value."""
        return first_sentence(inspect.getdoc(self.value) or "") if callable(self.value) else f"`{self.value!r}`"

    @property
    def has_page(self) -> bool:
        """Whether its docstring is ours: values have none, and what is Keras's is in Keras's pages."""
        return callable(self.value) and is_ours(self.value)


def public_names(module: str) -> list[Name]:
    """Return the public names of a module: those in `__all__`, else those that its file imports `as` themselves.

    Args:
        module: The module, such as "stratagem.data".

    Example:
        >>> [each.name for each in public_names("stratagem.nn")]
        ['compute_average_loss', 'scale_regularization_loss']
    """
    loaded = importlib.import_module(module)
    names = getattr(loaded, "__all__", None) or _exported(Path(str(loaded.__file__)))
    return [Name(module, name, getattr(loaded, name)) for name in sorted(names)]


def _exported(file: Path) -> list[str]:
    """Return the names that a file imports under their own name, which says that they are exported."""
    imports = [node for node in ast.parse(file.read_text("utf-8")).body if isinstance(node, ast.ImportFrom)]
    return [alias.name for node in imports for alias in node.names if alias.asname == alias.name]


def modules() -> list[str]:
    """Return the public modules whose names have pages, with modules inside modules."""
    found, ahead = [], ["stratagem"]
    while ahead:
        module = ahead.pop(0)
        found.append(module)
        inner = [each for each in public_names(module) if isinstance(each.value, types.ModuleType)]
        ahead += [each.value.__name__ for each in inner if each.value.__name__.startswith("stratagem.")]
    return sorted({name for name in found if name != "stratagem.keras"})


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring, in one line.

    Args:
        text: The docstring.

    Example:
        >>> first_sentence("All devices. One replica on each.")
        'All devices.'
    """
    paragraph = " ".join(text.partition("\n\n")[0].split())
    sentence, _, rest = paragraph.partition(". ")
    return f"{sentence}." if rest else sentence


def write(target: Path) -> None:
    """Write the pages of the reference.

    Args:
        target: The folder of the reference in the site's sources; it is made.
    """
    target.mkdir(parents=True)
    pages = modules()
    described: dict[int, Name] = {}  # a value that several modules name has one page
    for module in sorted(pages, key=lambda name: (name.count("."), "experimental" in name, name)):
        _write_module(module, target, described)
    classes = {each.value for each in described.values() if inspect.isclass(each.value)}
    for each in described.values():
        (target / f"{each.path}.rst").write_text(_page_of(each, classes))
    lists = [_keras_page(target), _tensorflow_pages(target)]
    table = "".join(f"| [{name}]({name}.md) | {_doc_of(name)} |\n" for name in pages)
    (target / "index.md").write_text(
        f"# Reference\n\n| module | |\n| --- | --- |\n{table}"
        f"| [stratagem.keras](stratagem.keras.md) | Keras, with the backend JAX. |\n"
        f"| [stratagem.tf](stratagem.tf.md) | Names of TensorFlow 2. |\n" + _toctree([*pages, *lists])
    )


def _doc_of(module: str) -> str:
    return first_sentence(inspect.getdoc(importlib.import_module(module)) or "")


def _write_module(module: str, target: Path, described: dict[int, Name]) -> None:
    """Write the page of a module, and note which of its names are described there first."""
    names = [each for each in public_names(module) if not isinstance(each.value, types.ModuleType)]
    for each in names:
        if each.has_page:
            described.setdefault(id(each.value), each)
    rows = "".join(f"| {_linked(each, described)} | {_cell(each.summary)} |\n" for each in names)
    opening = inspect.getdoc(importlib.import_module(module)) or ""
    (target / f"{module}.md").write_text(f"# {module}\n\n{opening}\n\n| name | |\n| --- | --- |\n{rows}")


def _linked(each: Name, described: dict[int, Name]) -> str:
    return f"[`{each.name}`]({described[id(each.value)].path}.rst)" if each.has_page else f"`{each.name}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _page_of(each: Name, classes: set[type]) -> str:
    options = options_of(each.value, classes) if each.directive == "autoclass" else ""
    home = f":doc:`{each.module} <{each.module}>`"
    # No page of a name is in the list beside all pages, which Furo writes anew for each: 300 would take minutes.
    return f":orphan:\n\n{each.path}\n{'=' * len(each.path)}\n\n{home}\n\n.. {each.directive}:: {each.path}\n{options}"


def _keras_page(target: Path) -> str:
    (target / "stratagem.keras.md").write_text(f"# stratagem.keras\n\n{_KERAS}\n")
    return "stratagem.keras"


def _tensorflow_pages(target: Path) -> str:
    """Write a page for `stratagem.tf`, and one for each module in it, to which that leads; return its name."""
    inner = [name for name in dir(stratagem.tf) if isinstance(getattr(stratagem.tf, name, None), types.ModuleType)]
    for name in inner:
        rows = _tensorflow_names(f"stratagem.tf.{name}", [])
        (target / f"stratagem.tf.{name}.md").write_text(
            f"---\norphan: true\n---\n\n# stratagem.tf.{name}\n\n[stratagem.tf](stratagem.tf.md)\n\n{rows}"
        )
    (target / "stratagem.tf.md").write_text(f"# stratagem.tf\n\n{_TF}\n\n{_tensorflow_names('stratagem.tf', inner)}")
    return "stratagem.tf"


def _tensorflow_names(module: str, with_pages: list[str]) -> str:
    """Return a list of the names of a module; modules that have pages lead there, other names to TensorFlow's."""
    folder = _TENSORFLOW + module.removeprefix("stratagem.tf").replace(".", "/")
    names = [name for name in dir(importlib.import_module(module)) if not name.startswith("_")]
    pages = {name: f"{module}.{name}.md" if name in with_pages else f"{folder}/{name}" for name in names}
    return "".join(f"- [`{name}`]({page})\n" for name, page in pages.items())


def _toctree(names: list[str]) -> str:
    entries = "\n".join(names)
    return f"\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n\n{entries}\n```\n"
