from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def test_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    exec(compile(code + "\nplace.cleanup()", str(PAGE), "exec"), {})
    printed = capsys.readouterr().out
    assert "efficientnet-lite2 500 {'accuracy': 0.9" in printed
    assert "model.safetensors: 1,000 bytes where" in printed
    assert "# ImageNette paths" in printed
