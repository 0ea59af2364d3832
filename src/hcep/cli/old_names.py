"""Commands and options that were renamed, and what to type instead: the only place that knows the old names."""

from collections.abc import Sequence

from hcep.errors import HCEPError

#: The command line to type instead of each command that is gone.
COMMANDS = {
    "encoders": "hcep info --encoders",
    "hierarchy diff": "hcep hierarchy compare OLD NEW",
    "hierarchy formats": "hcep info --formats",
    "hierarchy wordnet": "hcep induce wordnet WORDS -o FILE",
    "induce compare": "hcep hierarchy compare TREES --gold TREE --data DATA",
    "model add-class": "hcep model add MODEL DATA --class NAME --under PARENT",
    "model log": "hcep info MODEL",
    "model move": "hcep model edit MODEL --move CONCEPT:PARENT",
    "model remove": "hcep model edit MODEL --remove CLASS",
    "model rename": "hcep model edit MODEL --rename CONCEPT:NAME",
    "model update": "hcep model add MODEL DATA",
    "reproduce": "python -m experiments NAME (in a clone of the repository)",
    "store": "hcep info STORE --check",
    "store check": "hcep info STORE --check",
    "store repair": "hcep info STORE --repair",
}


def _parameters(*names: str, **renamed: str) -> dict[str, str]:
    """Options that are now `--parameter NAME=VALUE`, under the same name or, for `renamed`, another one."""
    new_names = {name: name for name in names} | renamed
    return {f"--{old.replace('_', '-')}": f"--parameter {new}=VALUE" for old, new in new_names.items()}


_OVERWRITE = {"--force": "--overwrite", "-f": "--overwrite"}
_SURE = {"--coverage": "--sure SHARE"}
_LABELS = {"--label": "--labels COLUMN"}
_FORMAT = {"--format": "--option format=NAME"}
_SECOND = "the data as second argument: hcep"
#: By command, the options that are gone and what replaces them in the same command; "" if nothing does.
OPTIONS: dict[str, dict[str, str]] = {
    "audit": {**_OVERWRITE, **_LABELS, **_SURE},
    "data": {"--preprocessing": ""},
    "demo": {"--images": "", "-n": "", "--beam-width": "", "-b": ""},
    "encode": {"--label-column": "--labels COLUMN", "--path-column": "--paths COLUMN"},
    "evaluate": {**_OVERWRITE, **_LABELS, "--format": "--output table.md (or .tex, .csv, .json)"},
    "explain": {"--replace": "--overwrite", "--strict": "", **_SURE},
    "fit": {
        **_OVERWRITE,
        **_LABELS,
        **_parameters("anchor", "shrinkage", "power", "refine", "priors", "beam_width", "signed", "unit_norm"),
        **_parameters("center", "tree", "head", "epochs", "batch_size", "lr", "name"),
        "--no-refine": "--parameter refine=false",
        "--several-objects": "--parameter several_objects=true",
        "--hierarchy-format": "--option format=NAME",
    },
    "hierarchy convert": {
        **_OVERWRITE,
        **_FORMAT,
        "--tree": "--single-parent first (or shortest, longest)",
    },
    "hierarchy edit": {**_OVERWRITE, **_LABELS, **_FORMAT, "--embeddings": "--data DATA"},
    "hierarchy lint": {
        **_OVERWRITE,
        **_LABELS,
        **_FORMAT,
        **_parameters("max_moves", images="n_images"),
        "--embeddings": "--data DATA",
    },
    "hierarchy show": {**_FORMAT, "--synset": "--concept NAME"},
    "induce": {
        **_OVERWRITE,
        **_LABELS,
        **_parameters("strategy", "root", "max_tokens", "timeout", "prices", rounds="max_rounds"),
        **_parameters("min_count", "max_parents", "linkage", "gap", "max_branching"),
        "--model": "--llm NAME",
        "--transcript": "--record FILE",
        "--evidence": "--record FILE",
    },
    "interpret": {
        "--phrases": "--vocabulary FILE",
        "--images": f"{_SECOND} interpret MODEL DATA",
        "--llm-model": "--llm NAME",
        "--format": "--output table.md (or .tex, .txt)",
        "--top-k": "--n-best NUMBER",
        "-k": "--n-best NUMBER",
        "--synset": "--concept NAME",
        "--preprocessing": "",
        "--rounds": "",
    },
    "model calibrate": _LABELS,
    "open": {**_OVERWRITE, "--images": f"{_SECOND} open SOURCE DATA"},
    "predict": {**_OVERWRITE, **_LABELS, **_SURE},
    "serve": _parameters("photos", "queue", "batch", max_megabytes="megabytes", max_megapixels="megapixels"),
}


def refuse_old_command(words: Sequence[str]) -> None:
    """Raise HCEPError with the new command line if the words start with a command that is gone."""
    for n_words in (2, 1):
        old = " ".join(words[:n_words])
        if old in COMMANDS:
            raise HCEPError(f"hcep {old} is now: {COMMANDS[old]}")


def refuse_old_option(command: str, option: str) -> None:
    """Raise HCEPError with the new option if the command once had this one."""
    new = OPTIONS.get(command, {}).get(option)
    if new is None:
        return
    if not new:
        raise HCEPError(f"hcep {command} {option} was removed; leave it out")
    raise HCEPError(f"hcep {command} {option} is now: {f'hcep {command} {new}' if new.startswith('-') else new}")
