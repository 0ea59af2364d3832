"""Fitted classifiers on disk and on the hub: safetensors, JSON, a model card. Loading executes nothing."""

from hcep.models.card import model_card
from hcep.models.fields import ModelError
from hcep.models.hub import download_model, from_pretrained, pull_model, push_model
from hcep.models.loading import load_model, load_summary
from hcep.models.records import EncoderRecord, ModelSummary, TrainingRecord
from hcep.models.saving import save_model

__all__ = [
    "EncoderRecord",
    "ModelError",
    "ModelSummary",
    "TrainingRecord",
    "download_model",
    "from_pretrained",
    "load_model",
    "load_summary",
    "model_card",
    "pull_model",
    "push_model",
    "save_model",
]
