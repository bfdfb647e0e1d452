"""The README's commands, copied out of it and pasted into a shell, one after the other; takes minutes."""

import os
import re
import subprocess
import sys

import pytest
from conftest import BIN, ROOT


def blocks(section: str) -> list:
    """Language and text of the code blocks of a section."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (part,) = re.findall(rf"^## {section}\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)
    return re.findall(r"^```(\w+)\n(.*?)^```", part, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_commands_for_own_data_work_as_they_are_written(tmp_path):
    for name in ("lv_fairseq", "scripts"):  # what they make goes to another folder than the project's
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv").symlink_to(BIN.parent)
    found, printed = blocks("On your own data"), ""
    assert len(found) > 8 and {language for language, _ in found} == {"bash", "python"}
    for language, code in found:
        if "fairseq-train ..." in code:  # flags that are to be added to a command above
            continue
        start = ["bash", "-euc"] if language == "bash" else [sys.executable, "-c"]
        environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run([*start, code], capture_output=True, text=True, cwd=tmp_path, env=environment)
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
        printed += done.stdout
    scores = [float(score) for score in re.findall(r'"score": ([\d.]+)', printed)]
    assert len(scores) == 2, printed
    assert len(re.findall("^H-", printed, re.MULTILINE)) == 6  # three sentences each, typed twice
    assert "unknown words replaced" in printed
