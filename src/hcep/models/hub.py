"""Models on the Hugging Face hub, through `huggingface_hub`: a push is one commit, a download only a model's files."""

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import hcep
from hcep._checks import require
from hcep.classify import HCEPClassifier
from hcep.embeddings.encoders.hub import error_chain, is_silence
from hcep.errors import quote, quoted
from hcep.models.card import model_card
from hcep.models.folder import NAMES, ModelFiles
from hcep.models.loading import load_model, read_model
from hcep.models.saving import encoded, pack
from hcep.models.schema import CARD, OPTIONAL, ModelError


def push_model(
    model: HCEPClassifier | str | PathLike[str],
    repo_id: str,
    *,
    branch: str | None = None,
    private: bool | None = None,
    token: str | bool | None = None,
    endpoint: str | None = None,
    **details: Any,
) -> str:
    """Upload a model to the hub in one commit and return the commit's address; the repository is created if needed.

    Parameters
    ----------
    model : a fitted classifier, or the folder of a saved one, which is checked first
    repo_id : such as "someone/pets"
    branch : "main" by default; created if needed
    private, token, endpoint : as in `huggingface_hub`
    **details : for a fitted classifier, those of `save_model`: encoder, data, images_per_class, metrics, name, license,
        language. A folder already contains them.
    """
    hub = _huggingface_hub()
    files = _files(model, repo_id, details)
    if CARD in files:
        _check_card(hub, files[CARD])
    operations = [hub.CommitOperationAdd(name, files[name]) for name in NAMES if name in files]
    with _explained(f"cannot push to {quote(repo_id)}"):
        api = hub.HfApi(endpoint=endpoint, token=token, library_name="hcep", library_version=hcep.__version__)
        repo = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        if branch is not None:
            api.create_branch(repo, branch=branch, exist_ok=True)
        message = "Push an HCEP model"
        return str(api.create_commit(repo, operations=operations, commit_message=message, revision=branch).commit_url)


def download_model(repo_id: str, **options: Any) -> Path:
    """Download the files of a model, and no others; return their folder.

    Options are those of `huggingface_hub.snapshot_download`: ``revision`` (branch, tag or commit), ``token``,
    ``cache_dir``, ``local_dir``, ``force_download``, ``local_files_only`` and ``endpoint``.
    """
    hub = _huggingface_hub()
    with _explained(f"cannot download {quote(repo_id)}"):
        folder = hub.snapshot_download(
            repo_id, allow_patterns=list(NAMES), library_name="hcep", library_version=hcep.__version__, **options
        )
    return Path(folder)


def from_pretrained(pretrained_model_name_or_path: str | PathLike[str], **options: Any) -> HCEPClassifier:
    """Load the model in a folder of this name, if there is one, otherwise from the hub; see `download_model`."""
    if Path(pretrained_model_name_or_path).is_dir():
        return load_model(pretrained_model_name_or_path)
    return load_model(download_model(str(pretrained_model_name_or_path), **options))


def _files(model: HCEPClassifier | str | PathLike[str], repo_id: str, details: dict[str, Any]) -> dict[str, bytes]:
    if isinstance(model, str | PathLike):
        if details:
            raise ModelError(
                f"{quoted(details)}: a saved model already has its details; pass them when you save the model"
            )
        saved = read_model(model)
        _ = saved.classifier, saved.atom_names
        names = [name for name in NAMES if name not in OPTIONAL or name in saved.document.files]
        return {name: ModelFiles(saved.folder).read(name) if name == CARD else saved.file(name) for name in names}
    facts = {key: details[key] for key in ("encoder", "data", "images_per_class", "metrics") if key in details}
    return {**pack(model, **facts), CARD: encoded(CARD, model_card(model, repo_id=repo_id, **details))}


def _check_card(hub: Any, card: bytes) -> None:
    """Refuse a card whose metadata the hub could not read; people may edit the card of a folder."""
    try:
        hub.ModelCard(card.decode("utf-8"))
    except Exception as error:  # of the YAML parser, which belongs to huggingface_hub
        reason = " ".join(str(error).split())[:200]
        raise ModelError(f"{CARD}: the metadata between the --- lines cannot be read: {reason}") from None


def _huggingface_hub() -> Any:
    return require("huggingface_hub", "hub", "the Hugging Face hub (save_model and load_model work without it)")


@contextmanager
def _explained(failure: str) -> Iterator[None]:
    """Turn any error of the client, which differs between its versions, into one line with the cause attached."""
    try:
        yield
    except Exception as error:
        raise ModelError(f"{failure}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    chain = list(error_chain(error))
    answers = (getattr(getattr(link, "response", None), "status_code", None) for link in chain)
    status = next((answer for answer in answers if answer is not None), None)
    if status in (401, 403):
        return (
            "the hub refused the request; run `hf auth login` or pass token=, and check that the token may write there"
        )
    if status == 404:
        return "no such repository or revision on the hub; a private one also needs a token (`hf auth login`)"
    # A response, even an error, means that the hub was reached; the client may wrap it as if it were not.
    if status is None and any(map(is_silence, chain)):
        return (
            "the hub cannot be reached, and there is no earlier download; check the network and HF_ENDPOINT, or copy "
            "the model's folder here and use hcep.load"
        )
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
