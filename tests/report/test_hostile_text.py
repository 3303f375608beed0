"""What users name is shown and never acts: pages, drawings, traces, terminal, JSON. ``test_pages_in_browser`` runs the pages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from clustersim import study
from clustersim.cli.run import _folder_name
from clustersim.cli.talk import say, to_json
from clustersim.errors import InputError
from clustersim.pipeline.search_space import Space
from clustersim.report.plan_figure import plan_figure
from clustersim.report.study_text import comparison_text, plan_text, sweep_text
from clustersim.report.sweep_figure import sweep_figure
from clustersim.report.timeline import write_timeline
from clustersim.report.timeline_html import timeline_html
from clustersim.scenario.load import load
from clustersim.shown import cut, drawable, printable
from tests.report.drawings import view
from tests.report.reports import HOSTILE, PLAN_SPACE, SMALL, four_pages

EVIL = "a\x1b[2J\x07\u202eb\x9b $\\frac{1}{0 [/b] {0} %s " + HOSTILE
ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal or a reader's eye would be led astray by."""


class Tags(HTMLParser):
    """Elements, attributes and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.keys: set[str] = set()
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.keys.update(key for key, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.mark.parametrize("kind", ["run", "compare", "sweep", "plan"])
def test_pages_gain_no_element(kind: str) -> None:
    hostile, plain = Tags(four_pages(HOSTILE)[kind]), Tags(four_pages()[kind])
    for name in ("script", "img", "style", "iframe", "link"):
        assert hostile.names.count(name) == plain.names.count(name)
    assert not any(key.startswith("on") for key in hostile.keys)
    assert HOSTILE in "".join(hostile.text)
    assert len(four_pages(HOSTILE)[kind]) < 5e6


def test_a_terminal_shows_names_and_obeys_none(capsys: pytest.CaptureFixture[str]) -> None:
    job = load(SMALL | {"name": EVIL, "simulation": {"replicas": 2}})
    other = job.replace({"name": f"other {EVIL}", "parallelism.schedule": "zb-h1"})
    over = {"description": [EVIL, "plain"]}
    texts = [
        comparison_text(study.compare([job, other])),
        sweep_text(study.sweep(job, over=over), "goodput_tokens_per_s"),
        plan_text(study.plan(job, space=Space(**PLAN_SPACE), over=over, layouts=1, replicas=4)),
    ]
    for text in texts:
        say(text)
        out = capsys.readouterr().out
        assert not ACTS.search(out)
        assert "a\ufffd[2J\ufffd\ufffdb\ufffd" in out
        assert max(map(len, out.splitlines())) < 700  # ten thousand characters do not bury the answer


def test_every_line_of_the_commands_goes_through_one_door() -> None:
    folder = Path(__file__).parents[2] / "clustersim" / "cli"
    for path in folder.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert path.name == "talk.py" or not re.search(
            r"(?<![\w.])print\(|typer\.echo\(|std(out|err)\.write\(", text
        ), path


def test_the_program_on_odd_names(tmp_path: Path) -> None:
    """A real terminal's worth: errors, file names that are no UTF-8, markup in the label of the progress bar."""
    name = "a\x1b[31m.yaml"
    (tmp_path / name).write_text('name: "[/b] \\u001b[31m"\nmodle: 1\nmodel: "\\u202e\\u001b[2J"\n')
    command = [sys.executable, "-m", "clustersim", "check", name, os.fsdecode(b"no\xff.yaml"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert not ACTS.search(done.stderr)
    assert "did you mean 'model'" in done.stderr
    assert not ACTS.search(done.stdout)
    assert json.loads(done.stdout)["scenarios"][0]["file"] == name  # data stays what it was


def test_json_keeps_what_a_terminal_must_not_see() -> None:
    text = to_json({"name": EVIL})
    assert not ACTS.search(text)
    assert json.loads(text) == {"name": EVIL}


def test_drawings_hold_names_as_text(tmp_path: Path) -> None:
    given = view("1f1b", title=EVIL)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        root = ElementTree.parse(write_timeline(tmp_path / "x.svg", given)).getroot()
        write_timeline(tmp_path / "x.png", given)
    assert {child.tag.rsplit("}")[-1] for child in root.iter()}.isdisjoint({"script", "image", "foreignObject"})
    trace = json.loads(write_timeline(tmp_path / "x.json", given).read_text(encoding="utf-8"))
    assert trace["otherData"]["schedules"] == [EVIL]
    assert Tags(timeline_html(given)).names.count("script") == 2


def test_figures_of_studies_hold_names_as_text(tmp_path: Path) -> None:
    job = load(SMALL | {"simulation": {"replicas": 2}})
    one: dict[str, Any] = {"description": [EVIL, "$x_{$"]}
    two = one | {"cluster.spare_nodes": [0, 1]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number, over in enumerate((one, two)):
            sweep_figure(study.sweep(job, over=over), "ettr", tmp_path / f"{number}.png")
        plan_figure(study.plan(job, space=Space(**PLAN_SPACE), over=one, layouts=1, replicas=2), tmp_path / "plan.png")
    assert all(path.stat().st_size > 5000 for path in tmp_path.iterdir())


def test_folders_have_names_that_a_file_system_takes() -> None:
    assert _folder_name("../../etc/passwd") == "-..-etc-passwd"
    assert len(_folder_name("日" * 300).encode()) <= 240
    assert _folder_name("...") == "scenario"


def test_helpers() -> None:
    assert printable("a\nb\t👩‍💻 عنوان\u202e") == "a\ufffdb\ufffd👩‍💻 عنوان\ufffd"
    assert cut("abcdef", 4) == "abc…"
    assert drawable("$x$") == r"\$x\$"


def test_emoji_written_as_json_writes_them(tmp_path: Path) -> None:
    """JSON's escaped surrogate pairs are one character; half a pair is none, and said to be none."""
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"extends": ["base.yaml"], "name": "👩‍💻 job"}))
    (tmp_path / "base.yaml").write_text(load(SMALL).resolved(), encoding="utf-8")
    assert load(str(path)).name == "👩‍💻 job"
    path.write_text(json.dumps({"extends": ["base.yaml"], "name": "\ud83d"}))
    with pytest.raises(InputError, match="name: holds half a surrogate pair"):
        load(str(path))
