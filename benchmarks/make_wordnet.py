"""Make the WordNet DAG that ships with the package from the shared one (data of HCEP_SHARED).

    python benchmarks/make_wordnet.py

Writes gzipped JSON: ImageNet's classes in their order, and lemmas, gloss and hypernyms of every synset above them.
Running it again gives the same bytes.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("HCEP_SHARED", ROOT.parent / "shared"))
PACKAGE = ROOT / "src" / "hcep"
TARGET = PACKAGE / "hierarchy" / "wordnet" / "imagenet1k.json.gz"


def main() -> None:
    dag = json.loads((SHARED / "data" / "imagenet1k_wordnet_dag.json").read_text(encoding="utf-8"))
    synsets = {wnid: [node["lemmas"], node["gloss"], node["hypernyms"]] for wnid, node in dag["nodes"].items()}
    content = {"classes": dag["leaf_wnids"], "synsets": synsets}
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    # Without a time stamp the file is always the same.
    TARGET.write_bytes(gzip.compress(text.encode("utf-8"), compresslevel=9, mtime=0))
    shutil.copyfile(PACKAGE / "datasets" / "sample" / "WORDNET_LICENSE", TARGET.with_name("WORDNET_LICENSE"))
    print(f"{len(synsets):,} synsets, {len(dag['leaf_wnids']):,} classes, {TARGET.stat().st_size / 1e3:.0f} KB")


if __name__ == "__main__":
    main()
