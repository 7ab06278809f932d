"""``python -m sweeper.engines.emulated <SGLang's flags>``: one emulated server.

The environment says how it behaves:

EMULATED_FAULT        what goes wrong, a name of :mod:`sweeper.engines.emulated.faults`
EMULATED_FAULT_AT     number of the request from which faults under load act (4)
EMULATED_START_SPEED  the start, and the engine's own waits, run that many times faster (1)
EMULATED_PROFILE      a packaged landscape by name, or the path of one
EMULATED_NOISE        relative spread of a step's time, in place of the profile's
EMULATED_SEED         of everything random (0)
EMULATED_PARSER       the flags that the installed SGLang takes, as its parser is cached
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sweeper.engines.emulated.clock import Clock
from sweeper.engines.emulated.faults import find
from sweeper.engines.emulated.flags import parse
from sweeper.engines.emulated.launcher import Launcher
from sweeper.engines.emulated.log import Log
from sweeper.engines.emulated.settings import Settings
from sweeper.engines.emulated.start_script import Facts, Times, script

if TYPE_CHECKING:
    from sweeper.engines.emulated.performance import Behaviour
    from sweeper.engines.emulated.profile import Profile

SLOW = 10.0
"""How many times as long the weights take with the fault ``slow_load``."""


def main(argv: Sequence[str], environ: Mapping[str, str]) -> None:
    """Be a server until the end; never returns.

    Raises:
        SystemExit: the flags are refused, or a variable says nothing that is known.
    """
    try:
        launcher = _launcher(_settings(argv, environ))
    except (ValueError, OSError) as error:
        raise SystemExit(f"the emulated engine cannot start: {error}") from None
    from sweeper.engines.emulated.serving import run

    run(launcher)


def _settings(argv: Sequence[str], environ: Mapping[str, str]) -> Settings:
    known = environ.get("EMULATED_PARSER")
    noise = environ.get("EMULATED_NOISE")
    return Settings(
        args=parse(argv, Path(known) if known else None),
        env=dict(environ),
        fault=environ.get("EMULATED_FAULT", ""),
        fault_at=int(environ.get("EMULATED_FAULT_AT") or 4),
        seed=int(environ.get("EMULATED_SEED") or 0),
        noise=float(noise) if noise else None,
        profile=environ.get("EMULATED_PROFILE", ""),
        launch_command=shlex.join(["python", "-m", "sweeper.engines.emulated", *argv]),
    )


def _launcher(settings: Settings) -> Launcher:
    from dataclasses import replace

    from sweeper.engines.emulated.performance import behaviour_of
    from sweeper.engines.emulated.profile import load_profile

    profile = load_profile(settings.profile)
    behaviour = behaviour_of(profile, settings.args, settings.env)
    fault = find(settings.fault or behaviour.fault)
    settings = replace(settings, fault=fault.name)
    times = Times.of(profile.start)
    if fault.name == "slow_load":
        times = times.slower(SLOW)
    quiet = fault.name == "quiet_log"
    level = "warning" if quiet else str(settings.args.get("log_level") or "info")
    # From here on: what Python took until now is no part of the start that is played.
    clock = Clock.start(float(settings.env.get("EMULATED_START_SPEED") or 1))
    log = Log(
        clock,
        level=level,
        http_level=str((None if quiet else settings.args.get("log_level_http")) or level),
        milliseconds=settings.env.get("SGLANG_LOG_MS") == "1",
        foreign=fault.name == "other_log_format",
    )
    return Launcher(settings, fault, script(times, _facts(settings, profile, behaviour)), log)


def _facts(settings: Settings, profile: Profile, behaviour: Behaviour) -> Facts:
    algorithm = settings.args.get("speculative_algorithm")
    return Facts(
        args={**settings.args, **behaviour.settings},
        notes=(f"Emulated engine, profile {profile.name}: no model is loaded.", *behaviour.notes),
        kv_tokens=behaviour.kv_tokens,
        max_running_requests=behaviour.max_running_requests,
        chunked_prefill_size=behaviour.chunked_prefill_size,
        context_length=profile.server.context_length,
        draft=bool(algorithm) and algorithm != "NGRAM",
    )


if __name__ == "__main__":
    main(sys.argv[1:], os.environ)
