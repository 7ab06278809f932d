"""The made-up model: the same everywhere, and its tokens are bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sweeper.models import make_tiny, tiny
from sweeper.models.cache import MANIFEST, sha256_of

PYTHON = Path(sys.executable)


def test_every_byte_has_a_character_of_its_own() -> None:
    alphabet = make_tiny.byte_alphabet()
    assert len(set(alphabet)) == 256
    assert all(character.isprintable() and character != " " for character in alphabet)
    assert alphabet[ord("a")] == "a"
    # "Ġ" for the space is what byte-level tokenizers are known by.
    assert alphabet[ord(" ")] == "\u0120"


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_heads_divide(ranks: int) -> None:
    assert make_tiny.HEADS % ranks == 0
    assert make_tiny.KV_HEADS % ranks == 0
    assert make_tiny.INTERMEDIATE % ranks == 0


@pytest.mark.engine
def test_weights_depend_on_the_seed_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = tiny.ensure(PYTHON)
    monkeypatch.setenv("SWEEPER_CACHE", str(tmp_path))
    again = tiny.ensure(PYTHON)
    assert again != usual
    assert sha256_of(again / "model.safetensors") == sha256_of(usual / "model.safetensors")
    assert json.loads((again / MANIFEST).read_text())["made_with"].keys() >= {"torch"}
    # A finished model asks for no interpreter.
    assert tiny.ensure(Path("/nowhere/python")) == again


@pytest.mark.engine
def test_transformers_loads_it() -> None:
    code = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
text = "Grüße, 世界! <|eos|>"
ids = tokenizer(text, add_special_tokens=False)["input_ids"]
assert ids == [*text.removesuffix("<|eos|>").encode(), 257], ids
assert tokenizer.decode(ids) == text, tokenizer.decode(ids)
chat = tokenizer.apply_chat_template(
    [{"role": "user", "content": "hi"}], add_generation_prompt=True, tokenize=False
)
assert chat == "<|bos|>user: hi\\nassistant: ", chat
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype="auto")
answer = model.generate(
    torch.tensor([ids]), max_new_tokens=64, do_sample=False, eos_token_id=None
)[0, len(ids):]
assert len(answer) == 64
assert all(0x20 <= token < 0x7F for token in answer), answer
assert len(set(answer.tolist())) > 5, answer
"""
    directory = str(tiny.ensure(PYTHON))
    done = subprocess.run([sys.executable, "-c", code, directory], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
