"""YAML that is read back as it was."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from stratagem.manifest.yaml_text import Anchor, Merged, Note, documents

TEXTS = [
    "train.py", "", " ", "no", "Yes", "NULL", "~", "1", "1.5", "1e3", "0x10", "2026-11-28",
    "-1", "-", "--", "---", "--a=b",
    "a: b", "a:", "a:b", "a #b", "#a", "[a]", "{a}", "a,b", "*a", "&a", "!a", "%a", "@a", "`a`",
    "'a'", '"a"', "say \"it's\"",
    "back\\slash", "tab\t", "é", "a\nb", "a\nb\n", "a\nb\n\n", "\na", " a\nb", "a\n  b", "a \nb", "\x07",
    "\u2028", "$(INDEX)",
    '{"cluster": {"worker": ["a:1"]}}', "<name>", "a<b>", "=", "<<", "?", "? a", "| a", "> a",
    ".inf", ".5", "-.inf", "on", "off",
    "12:30:45", "_1", "a\r\nb", "\\n", "/dev/shm", "500m", "1_000", "-a", "-a:", "- a", "$",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back(text: str) -> None:
    value = {"key": text, "list": [text, text], "items": [{"a": text}, {"b": [[text]]}], text: 1}
    assert yaml.safe_load(documents("head", value)) == value


@pytest.mark.parametrize(
    "value",
    [
        {"a": {}, "b": [], "c": None, "d": [{}], "e": [[]], "f": [None], "g": -1.5},
        {"a": {"b": {"c": [{"d": [{"e": 1}]}]}}},
        {"long": ["x" * 40] * 4},
        {"nested": [[1, 2], [{"a": 1, "b": [1]}]]},
        [{"a": 1, "b": 2}, "c"],
    ],
)
def test_values_come_back(value: Any) -> None:
    assert yaml.safe_load(documents("", value)) == value


def test_comments_stand_above_what_they_are_of() -> None:
    text = documents(
        "Head.\n\nMore.",
        {"a": Note({"b": Note(1, "one")}, "two\nlines"), "c": [Note({"d": 1, "e": 2}, "of an item"), Note("f", "g")]},
        {"c": [{"d": Note(1, "of what an item begins with"), "e": 2}]},
    )
    assert text == (
        "# Head.\n#\n# More.\n"
        "# two\n# lines\na:\n  # one\n  b: 1\nc:\n  # of an item\n  - d: 1\n    e: 2\n  # g\n  - f\n"
        "---\nc:\n  # of what an item begins with\n  - d: 1\n    e: 2\n"
    )
    assert list(yaml.safe_load_all(text)) == [{"a": {"b": 1}, "c": [{"d": 1, "e": 2}, "f"]}, {"c": [{"d": 1, "e": 2}]}]


def test_anchors_are_merged() -> None:
    text = documents("", {"x": Anchor("one", {"a": 1}), "z": {"<<": Merged("one"), "b": 2}})
    assert yaml.safe_load(text)["z"] == {"a": 1, "b": 2}
    assert text == "x: &one\n  a: 1\nz:\n  <<: *one\n  b: 2\n"
