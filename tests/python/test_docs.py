# SPDX-License-Identifier: Apache-2.0
"""Every Python snippet of the documentation runs; those of one page share their names, as a reader's notebook does."""

import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted(p for p in [SOURCE / "README.md", *(SOURCE / "docs").rglob("*.md")] if "```python" in p.read_text())


def snippets(page):
    return [textwrap.dedent(m) for m in re.findall(r"^ *```python\n(.*?)^ *```", page.read_text(), re.S | re.M)]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_snippets_run(page, tmp_path):
    program = tmp_path / "page.py"
    program.write_text("\n".join(snippets(page)))
    run = subprocess.run([sys.executable, program], cwd=SOURCE, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-2000:]


def test_there_are_pages():
    assert len(PAGES) >= 2
