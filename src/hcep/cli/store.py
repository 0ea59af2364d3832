"""`hcep store`: whether an embedding store is whole, and what to do when it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hcep import embeddings
from hcep.cli.console import say, say_json
from hcep.cli.options import Json, argument
from hcep.errors import HCEPError

app = typer.Typer(no_args_is_help=True, help="Check and mend an embedding store.", rich_markup_mode="rich")
Store = Annotated[Path, argument("Folder of a store that `hcep encode` made.")]


@app.command()
def check(store: Store, as_json: Json = False) -> None:
    """Read every file of a store and compare it with what was written; exit code 1 where something is damaged."""
    opened = embeddings.EmbeddingStore(store)
    damage = opened.damaged_shards()
    if not damage:
        try:
            opened.verify()
        except HCEPError as error:
            damage = {"copy": str(error)}
    if as_json:
        say_json({"store": str(store), "n_images": len(opened), "damaged": damage})
    else:
        for file, what in damage.items():
            say(f"damaged: {file}: {what}")
        told = "repair with: hcep store repair" if damage else f"{len(opened.shards):,} files, all as written"
        say(f"{store}: {len(opened):,} images; {told}")
    raise typer.Exit(int(bool(damage)))


@app.command()
def repair(store: Store, as_json: Json = False) -> None:
    """Drop the damaged files of a store; `hcep encode` then encodes their images again, and no others."""
    dropped = embeddings.EmbeddingStore(store).repair()
    left = len(embeddings.EmbeddingStore(store))
    if as_json:
        say_json({"store": str(store), "n_images": left, "dropped": dropped})
    else:
        n_files = f"{len(dropped):,} damaged file{'' if len(dropped) == 1 else 's'} dropped"
        say(f"{store}: {n_files}, {left:,} images left" + ("; run `hcep encode` again" if dropped else ""))
