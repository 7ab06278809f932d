"""Turns a GGUF file into a model directory that SGLang loads.

    python convert_gguf.py FILE.gguf OUTDIR

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

NEEDED = ("torch", "transformers", "safetensors", "gguf", "accelerate")
EXIT_MISSING = 3


def convert(gguf: Path, outdir: Path) -> None:
    """Write weights in bfloat16, configuration and tokenizer of ``gguf`` to ``outdir``."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.save_pretrained(outdir)

    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        # Without it, an environment with GGUF kernels keeps the weights packed.
        quantization_config=GgufConfig(dequantize=True),
    )
    weights = model.state_dict()
    packed = [name for name, tensor in weights.items() if tensor.dtype != torch.bfloat16]
    if packed:
        raise SystemExit(f"{len(packed)} tensors are not bfloat16 after loading: {packed[0]}, ...")
    if model.config.tie_word_embeddings:
        # The same memory under two names, which safetensors refuses.
        weights.pop("lm_head.weight", None)
    # Not save_pretrained: it refuses weights that came from a quantized file.
    save_file(
        {name: tensor.contiguous() for name, tensor in weights.items()},
        outdir / "model.safetensors",
        metadata={"format": "pt"},
    )

    config = model.config.to_dict()
    # The weights are plain bfloat16 now. With this entry left in, the server
    # would look for a quantized file.
    config.pop("quantization_config", None)
    for key in ("_name_or_path", "_model_name_or_path"):
        config.pop(key, None)
    config["architectures"] = [type(model).__name__]
    config["torch_dtype"] = "bfloat16"
    config["bos_token_id"] = tokenizer.bos_token_id
    config["eos_token_id"] = tokenizer.eos_token_id
    generation = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    for name, content in (("config.json", config), ("generation_config.json", generation)):
        text = json.dumps(content, indent=2, sort_keys=True, default=str)
        (outdir / name).write_text(text + "\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Do what the command line says and return the exit status."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        sys.stderr.write(" ".join(missing) + "\n")
        return EXIT_MISSING
    if arguments != ["--check"]:
        gguf, outdir = map(Path, arguments)
        convert(gguf, outdir)
    versions = {name: importlib.metadata.version(name) for name in NEEDED}
    sys.stdout.write(json.dumps(versions) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
