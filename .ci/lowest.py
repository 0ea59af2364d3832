"""Constraints that pin every dependency of pyproject.toml to the lowest version it claims to work with."""

import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["project"]
for requirement in project["dependencies"]:
    name, lowest = re.fullmatch(r"([\w.-]+)>=([\w.]+)", requirement).groups()
    print(f"{name}=={lowest}.*" if lowest.count(".") < 2 else f"{name}=={lowest}")
