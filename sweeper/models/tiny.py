"""The model ``embedded-tiny``: a made-up Llama with random weights.

It needs no network and starts fast, and its heads divide by two, so that it
also runs tensor-parallel. What it writes is noise.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from sweeper.models.cache import Recipe, build_once, models_folder, sha256_of
from sweeper.models.engine_script import run_engine_script

logger = logging.getLogger(__name__)

DESCRIPTION = "made-up tiny Llama with random weights"

_SCRIPT = "make_tiny.py"


def ensure(python: Path) -> Path:
    """Return the model directory, after making it if this machine has none.

    Args:
        python: the engine's interpreter.

    Raises:
        MachineError: the interpreter lacks libraries, or the disk is full.
    """
    # The script decides the content, so a changed script makes a new model.
    script = sha256_of(Path(__file__).with_name(_SCRIPT))
    recipe = Recipe("tiny-llama", DESCRIPTION, {"script": script})

    def build(directory: Path) -> Mapping[str, str]:
        logger.info("Making a %s ...", DESCRIPTION)
        return run_engine_script(python, _SCRIPT, str(directory), what="make the tiny model")

    return build_once(models_folder(), recipe, build)
