"""Writes a made-up Llama with random weights as a model directory.

    python make_tiny.py OUTDIR

It runs in the engine's interpreter, which may not have Sweeper installed, so
it imports nothing of Sweeper. With ``--check`` it only tells, on standard
error and with exit status 3, which libraries the interpreter lacks. The last
line on standard output is a JSON object with the versions of the libraries.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

NEEDED = ("torch", "transformers", "safetensors", "tokenizers")
EXIT_MISSING = 3

SEED = 20_240_607
BOS, EOS = "<|bos|>", "<|eos|>"
BYTES = 256
VOCABULARY = BYTES + 2
CONTEXT = 8192

# Heads divide by 2 and 4 for tensor parallelism. The head size is one that GPU
# attention kernels accept; hidden size / heads would give 32, which some refuse.
HIDDEN = 256
HEADS = 8
KV_HEADS = 4
HEAD_SIZE = 64
LAYERS = 2
INTERMEDIATE = 512

CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{{ message['role'] + ': ' + message['content'] + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)


def byte_alphabet() -> list[str]:
    """Return the visible stand-ins of bytes 0 to 255, in the order of the bytes.

    Byte-level BPE writes each byte as one printable character: itself where it
    is printable Latin-1, else the next free character from U+0100 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(BYTES)]


def write_tokenizer(outdir: Path) -> None:
    """Save a tokenizer whose token id of a byte is the byte itself."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {character: byte for byte, character in enumerate(byte_alphabet())}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in (BOS, EOS)])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    ).save_pretrained(outdir)


def write_model(outdir: Path) -> None:
    """Save configuration and bfloat16 weights, the same on every machine."""
    import torch
    from safetensors.torch import save_file

    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "bos_token_id": BYTES,
        "eos_token_id": BYTES + 1,
        "head_dim": HEAD_SIZE,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "max_position_embeddings": CONTEXT,
        "mlp_bias": False,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": KV_HEADS,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vocab_size": VOCABULARY,
    }
    generator = torch.Generator().manual_seed(SEED)

    def random(rows: int, columns: int, gain: float = 1.0) -> Any:
        # Scaled by the number of inputs, so that the hidden state neither
        # fades nor explodes from layer to layer.
        values = torch.randn(rows, columns, generator=generator) * gain * columns**-0.5
        return values.to(torch.bfloat16)

    def ones() -> Any:
        return torch.ones(HIDDEN, dtype=torch.bfloat16)

    weights = {"model.embed_tokens.weight": random(VOCABULARY, HIDDEN, HIDDEN**0.5)}
    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        weights |= {
            f"{name}.input_layernorm.weight": ones(),
            f"{name}.self_attn.q_proj.weight": random(HEADS * HEAD_SIZE, HIDDEN),
            f"{name}.self_attn.k_proj.weight": random(KV_HEADS * HEAD_SIZE, HIDDEN),
            f"{name}.self_attn.v_proj.weight": random(KV_HEADS * HEAD_SIZE, HIDDEN),
            f"{name}.self_attn.o_proj.weight": random(HIDDEN, HEADS * HEAD_SIZE),
            f"{name}.post_attention_layernorm.weight": ones(),
            f"{name}.mlp.gate_proj.weight": random(INTERMEDIATE, HIDDEN),
            f"{name}.mlp.up_proj.weight": random(INTERMEDIATE, HIDDEN),
            f"{name}.mlp.down_proj.weight": random(HIDDEN, INTERMEDIATE),
        }
    weights["model.norm.weight"] = ones()
    head = random(VOCABULARY, HIDDEN, gain=3.0)
    # The greedy choice is then printable ASCII. Bytes that are no valid UTF-8
    # would make the server hold text back, and the stream would stutter.
    printable = torch.zeros(VOCABULARY, 1, dtype=torch.bfloat16)
    printable[0x20:0x7F] = 1
    weights["lm_head.weight"] = head * printable

    save_file(weights, outdir / "model.safetensors", metadata={"format": "pt"})
    generation = {"bos_token_id": BYTES, "eos_token_id": BYTES + 1}
    for name, content in (("config.json", config), ("generation_config.json", generation)):
        (outdir / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Do what the command line says and return the exit status."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        sys.stderr.write(" ".join(missing) + "\n")
        return EXIT_MISSING
    if arguments != ["--check"]:
        (outdir,) = map(Path, arguments)
        write_tokenizer(outdir)
        write_model(outdir)
    versions = {name: importlib.metadata.version(name) for name in NEEDED}
    sys.stdout.write(json.dumps(versions) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
