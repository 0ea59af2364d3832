"""`hcep store`: whether an embedding store is whole, and what to do when it is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hcep.cli.console import say

app = typer.Typer(no_args_is_help=True, help="Check and mend an embedding store.", rich_markup_mode="rich")
Store = Annotated[Path, typer.Argument(help="Folder of a store that `hcep encode` made.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


@app.command()
def check(store: Store, as_json: Json = False) -> None:
    """Read every file of a store and compare it with what was written; exit code 1 where something is damaged."""
    from hcep.embeddings import EmbeddingStore
    from hcep.errors import HCEPError

    opened = EmbeddingStore(store)
    damage = opened.damaged_shards()
    if not damage:
        try:
            opened.verify()
        except HCEPError as error:
            damage = {"copy": str(error)}
    if as_json:
        say(json.dumps({"store": str(store), "n_images": len(opened), "damaged": damage}, indent=2))
    else:
        for file, what in damage.items():
            say(f"damaged: {file}: {what}")
        told = "repair with: hcep store repair" if damage else f"{len(opened.shards):,} files, all as written"
        say(f"{store}: {len(opened):,} images; {told}")
    if damage:
        raise typer.Exit(1)


@app.command()
def repair(store: Store, as_json: Json = False) -> None:
    """Drop the damaged files of a store; `hcep encode` then encodes their images again, and no others."""
    from hcep.embeddings import EmbeddingStore

    dropped = EmbeddingStore(store).repair()
    left = len(EmbeddingStore(store))
    if as_json:
        say(json.dumps({"store": str(store), "n_images": left, "dropped": dropped}, indent=2))
    else:
        n_files = f"{len(dropped):,} damaged file{'' if len(dropped) == 1 else 's'} dropped"
        say(f"{store}: {n_files}, {left:,} images left" + ("; run `hcep encode` again" if dropped else ""))
