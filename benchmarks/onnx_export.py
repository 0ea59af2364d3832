"""An exported ONNX file against Python: differences on photos, size, and computing time until the first answer.

    python benchmarks/onnx_export.py MODEL PHOTOS

MODEL is a folder of `hcep fit` whose encoder is an ONNX network, such as the built-in one.
"""

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from hcep.datasets import read_images
from hcep.embeddings.images import open_image
from hcep.models import read_model
from hcep.models.model_encoder import load_model_encoder
from hcep.models.onnx_folders import export_space

BATCH = 32
FIRST = (
    "import sys; sys.path[0] = sys.argv[1]; from PIL import Image; import app; app.classify(Image.open(sys.argv[2]))"
)


def computing_time(*command: str) -> float:
    """Seconds of all cores that a command takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(model: str, photos: str) -> None:
    import onnxruntime

    saved, files = read_model(model), [item.path for item in read_images(photos)]
    encoder = load_model_encoder(saved.encoder, saved.folder)
    with tempfile.TemporaryDirectory() as folder:
        export_space(saved, Path(folder))
        session = onnxruntime.InferenceSession(Path(folder, "model.onnx"))
        worst = 0.0
        for start in range(0, len(files), BATCH):
            batch = np.stack([encoder.preprocess(open_image(file)) for file in files[start : start + BATCH]])
            (own,) = session.run(["probabilities"], {session.get_inputs()[0].name: batch})
            expected = saved.classifier.predict_proba(encoder.encode_images(batch))
            worst = max(worst, float(np.abs(own - expected).max()))
        size = Path(folder, "model.onnx").stat().st_size / 1e6
        print(f"{len(files)} photos: largest difference {worst:.1e}; {size:.1f} MB")
        alone, output = Path(folder, "photo"), str(Path(folder, "answers.csv"))
        alone.mkdir()
        (alone / files[0].name).write_bytes(files[0].read_bytes())
        hcep = str(Path(sys.executable).with_name("hcep"))
        predict = (hcep, "predict", model, str(alone), "-o", output, "--overwrite")
        first = (sys.executable, "-c", FIRST, folder, str(files[0]))
        times = [(computing_time(*first), computing_time(*predict)) for _ in range(5)]
        ours, python = np.median(times, axis=0)
        print(f"computing time until the first answer: ONNX {ours:.2f} s, hcep predict {python:.2f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
