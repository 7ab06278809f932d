"""Runs one of Sweeper's scripts in the engine's interpreter.

The libraries that write models live where SGLang lives, and so does SGLang
itself. That may be another environment than Sweeper's own.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from sweeper.errors import MachineError

EXIT_MISSING = 3
"""Exit status of a script whose interpreter lacks libraries; their names are on stderr."""

_SHOWN_LINES = 5


def run_engine_script(
    python: Path, script: str | Path, *arguments: str, what: str, timeout: float = 900
) -> dict[str, str]:
    """Run a script, wait for it and return what it worked with.

    A script's last line on stdout is a JSON object: libraries and their versions.

    Args:
        python: the engine's interpreter.
        script: its full path, or the name of a file in ``sweeper/models``.
        arguments: its command line.
        what: what it does, for error messages: "convert the model".
        timeout: seconds.

    Raises:
        MachineError: the interpreter is not there, lacks libraries, or the
            script failed.
    """
    path = Path(__file__).parent / script
    environment = os.environ | {
        # Everything it needs is local; a look at the hub would only cost time.
        "HF_HUB_OFFLINE": "1",
        # The GPUs may be busy with a measurement.
        "CUDA_VISIBLE_DEVICES": "",
        # The script's neighbours must not shadow the libraries' own imports.
        "PYTHONSAFEPATH": "1",
        # SGLang's platforms are none of the script's business.
        "SGLANG_PLATFORM": "",
    }
    try:
        done = subprocess.run(
            [str(python), str(path), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except OSError as error:
        raise MachineError(
            f"the engine's Python interpreter cannot be started: {error.strerror}",
            where=str(python),
            advice="Name the interpreter of the environment in which SGLang is installed.",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise MachineError(
            f"it took more than {timeout:.0f} s to {what}",
            where=str(python),
            advice="Look whether the machine is out of memory or busy, then try again.",
        ) from error
    if done.returncode == EXIT_MISSING:
        libraries = last_lines(done.stderr, 1)
        raise MachineError(
            f"cannot {what}: the engine's environment lacks {', '.join(libraries.split())}",
            where=str(python),
            advice='Install the extra "engine" there: pip install "sweeper[engine]"',
        )
    if done.returncode != 0:
        raise MachineError(
            f"could not {what} (exit status {done.returncode})",
            where=str(python),
            advice=f"Its last words:\n{last_lines(done.stderr, _SHOWN_LINES)}",
        )
    versions = json.loads(last_lines(done.stdout, 1))
    return {str(name): str(version) for name, version in versions.items()}


def last_lines(text: str, count: int) -> str:
    """Return the last ``count`` lines of ``text`` that say something.

    A carriage return counts as a line end: what stands before it is a
    progress bar that was overwritten.
    """
    lines = [line.rsplit("\r", 1)[-1].rstrip() for line in text.split("\n")]
    return "\n".join([line for line in lines if line][-count:])
