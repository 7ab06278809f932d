"""Ray started for one sweep: loopback only, its own files in the results folder."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from sweeper.errors import MachineError
from sweeper.search.director import Director
from sweeper.search.prepare import Prepared

# The two processes that Ray cannot do without.
_DAEMONS = ("raylet", "gcs_server")


@dataclass(frozen=True)
class Cluster:
    """Ray while it runs.

    Args:
        dashboard: where to look at it.
        daemons: the processes that it cannot do without.
        helpers: what else it started here.
    """

    dashboard: Dashboard
    daemons: tuple[psutil.Process, ...]
    helpers: tuple[psutil.Process, ...]

    def alive(self) -> bool:
        """Whether Ray still runs. A signal to our whole group, as systemd sends it, ends Ray too."""
        return all(
            daemon.is_running() and daemon.status() != psutil.STATUS_ZOMBIE
            for daemon in self.daemons
        )

    def end_by_force(self) -> None:
        """End Ray from outside. Its own way out waits for daemons that a signal has ended."""
        left = {*self.daemons, *self.helpers, *psutil.Process().children(recursive=True)}
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()  # psutil makes sure that it is still the same process
        psutil.wait_procs(left, timeout=5)


@dataclass(frozen=True)
class Dashboard:
    """Where to look at Ray, and how to get in.

    Args:
        url: of the dashboard; None where Ray could not start one.
        token_file: Ray asks for the token in it, since 2.60.
    """

    url: str | None
    token_file: Path | None


@contextlib.contextmanager
def ray_cluster(prepared: Prepared) -> Iterator[Cluster]:
    """Ray on this machine alone, ended when the block ends.

    Raises:
        MachineError: Ray does not start.
    """
    # Tune's own files would double what the log holds, and its table our own.
    os.environ |= {
        "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
        "RAY_AIR_NEW_OUTPUT": "0",
        "RAY_CHDIR_TO_TRIAL_DIR": "0",
        "RAY_DEDUP_LOGS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray lowers its workers' priority by 15, and servers would inherit that: a number
        # measured so would be of a server that gives way to everything else.
        "RAY_worker_niceness": "0",
        # When Ray's node is gone, its client ends the process it runs in, silently and with
        # status 1, if the parent is process 1 (as under systemd). It asks this process
        # instead of the parent; we notice a lost node ourselves, and still have to write.
        "RAY_RAYLET_PID": str(os.getpid()),
    }
    import ray

    # It tells about its signal handlers and its token, and of a worker that died with a
    # traceback; where_to_look() and the record say what matters.
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    options = {
        "address": "local",
        # Without it Ray binds to the machine's address in the network.
        "_node_ip_address": "127.0.0.1",
        "num_cpus": max(prepared.plan.space.search.parallel, os.cpu_count() or 1),
        "num_gpus": len(prepared.gpus),
        "log_to_driver": False,
        "logging_level": "ERROR",
        "configure_logging": False,
    }
    try:
        # Where its packages are missing, a sweep is worth more than the dashboard.
        context = ray.init(**options, include_dashboard=_has_dashboard())
    except BaseException as error:
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()  # what it had started already
        if not isinstance(error, Exception):
            raise
        raise MachineError(
            f"Ray does not start: {str(error).splitlines()[0]}",
            where="ray.init",
            advice="Look whether /tmp has room and whether RAY_ variables in your shell are right.",
        ) from None
    started = psutil.Process().children(recursive=True)
    daemons = tuple(child for child in started if child.name() in _DAEMONS)
    helpers = tuple(child for child in started if child not in daemons)
    cluster = Cluster(_dashboard(context.dashboard_url), daemons, helpers)
    try:
        yield cluster
    finally:
        if cluster.alive():
            ray.shutdown()
        else:
            cluster.end_by_force()


def fit(prepared: Prepared, director: Director) -> None:
    """Run all trials; returns when the director has nothing more to propose."""
    import ray
    from ray import tune

    from sweeper.search.bridge import RungScheduler, StudySearcher
    from sweeper.search.trainable import SweepTrainable

    resources = {"cpu": 1, "gpu": prepared.gpus_per_trial}
    # A reference in a list, which Tune hands on as it is. Tune writes what it is given
    # into tuner.pkl, and the plan holds secrets.
    trainable = tune.with_parameters(SweepTrainable, plan=[ray.put(prepared.plan)])
    tuner = tune.Tuner(
        tune.with_resources(trainable, resources),
        tune_config=tune.TuneConfig(
            search_alg=StudySearcher(director),
            scheduler=RungScheduler(director),
            num_samples=-1,  # the director says when it is enough
            reuse_actors=True,
            trial_dirname_creator=_trial_name,
            trial_name_creator=_trial_name,
        ),
        run_config=tune.RunConfig(
            name="ray",
            storage_path=str(prepared.plan.folder.path),
            verbose=0,
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    )
    tuner.fit()


def _has_dashboard() -> bool:
    """Whether what Ray's dashboard needs is installed, as it is with ``ray[default]``."""
    return all(importlib.util.find_spec(name) for name in ("aiohttp", "aiohttp_cors"))


def _trial_name(trial: object) -> str:
    config = getattr(trial, "config", {})
    again = f"_{config['attempt']}" if config.get("attempt") else ""
    return f"trial_{config.get('trial', 0):04d}{again}"


def _dashboard(url: str | None) -> Dashboard:
    token = Path.home() / ".ray" / "auth_token"
    return Dashboard(f"http://{url}" if url else None, token if token.exists() else None)
