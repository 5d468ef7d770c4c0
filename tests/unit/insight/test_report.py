from __future__ import annotations

import html.parser
import math
import shutil
import subprocess
from pathlib import Path

import pytest

from stratagem.core.spent import Spent
from stratagem.insight.observer import Observer
from stratagem.insight.report import page, write_report
from stratagem.insight.samples import Sample


class _Tags(html.parser.HTMLParser):
    """Counts tags, and checks that each is closed in its order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href") and value]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _observed(tmp_path: Path, command: str = "train.py <script>alert(1)</script>") -> Observer:
    observer = Observer(command)
    files = {f"worker {i}": tmp_path / f"{i}" for i in range(2)}
    observer.follow(files)
    for second in range(1, 40):
        for i, name in enumerate(files):
            spent = Spent(2.0, 1.0, 0.1 * second, 0.0, 0.5 * second, 0.1 * second, 0.3 * second * i)
            loss = math.nan if second == 20 else 1.0 / second
            moment = observer.began + second
            sample = Sample(moment, moment, 11 + i, 20 * second, "computing", spent, loss, (300 + i) << 20, True)
            observer.histories[name].add(sample)
    observer.note("worker 1 was ended by SIGKILL & came back.")
    return observer


def test_the_page_is_whole_and_needs_no_network(tmp_path: Path) -> None:
    text = page(_observed(tmp_path))
    tags = _Tags(text)
    assert tags.open == []
    assert tags.links == []
    assert "http" not in text.replace("http-equiv", "")
    assert "<script" not in text
    assert "train.py &lt;script&gt;" in text
    assert "SIGKILL &amp; came back" in text
    assert tags.found.count("svg") == 5  # steps, a share plot for each worker, loss, memory
    # A loss that is no number interrupts its line: two pieces for each worker.
    assert [tags.found.count(tag) for tag in ("polyline", "polygon")] == [2 + 4 + 2, 2 * len(Spent._fields)]
    assert "20.0" in text
    assert "worker 0              " in text


def test_a_run_without_any_sample_has_a_page(tmp_path: Path) -> None:
    write_report(Observer("train.py"), tmp_path / "run.html")
    assert _Tags((tmp_path / "run.html").read_text()).open == []
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.html"]


def test_a_page_that_cannot_be_written_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "run.html").mkdir()
    write_report(Observer("train.py"), tmp_path / "run.html")
    assert "could not be written" in caplog.text


BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.skipif(BROWSER is None, reason="no browser is installed")
def test_a_browser_shows_it(tmp_path: Path) -> None:
    write_report(_observed(tmp_path), tmp_path / "run.html")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command += ["--virtual-time-budget=2000", "--dump-dom", (tmp_path / "run.html").as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert shown.count("<svg") == 5
    assert shown.count("<polyline") == 8
