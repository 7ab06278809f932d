"""The flags come from the installed SGLang, are read once, and faults are told in plain words."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sweeper.engines.sglang.parser import Flag, InstalledParser, installed_parser
from sweeper.errors import MachineError

# What SGLang's own module does, with one option of each kind.
SERVER_ARGS = """
import argparse, os
with open(os.environ["IMPORTED"], "a") as log:
    log.write("once\\n")
print("noise of an import")

class DeprecatedStoreTrueAction(argparse.Action):
    def __init__(self, option_strings, dest, nargs=0, **kwargs):
        super().__init__(option_strings, dest, nargs=nargs, **kwargs)

class Odd:
    def __repr__(self):
        return "Odd()"

class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--tp-size", "--tensor-parallel-size", type=int, default=1)
        parser.add_argument("--backend", choices={"b", "a"})
        parser.add_argument("--page", type=int, choices=[16, 32], help="Not deprecated.")
        parser.add_argument("--plain", action="store_true")
        parser.add_argument("--old", action=DeprecatedStoreTrueAction)
        parser.add_argument("--older", help="(Deprecated: use --plain) Words.")
        parser.add_argument("--both", action=argparse.BooleanOptionalAction, default=True)
        parser.add_argument("--many", nargs="+")
        parser.add_argument("--some", nargs="*", default=[])
        parser.add_argument("--perhaps", nargs="?")
        parser.add_argument("--odd", default=Odd())
"""

Engine = Callable[[str], Path]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SWEEPER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("IMPORTED", str(tmp_path / "imported"))
    return tmp_path / "cache" / "engines"


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    """An interpreter without installed packages, and with a small SGLang of the given version."""

    def make(version: str) -> Path:
        site = tmp_path / "site"
        for old in site.glob("*.dist-info/METADATA"):
            old.unlink()
            old.parent.rmdir()
        (site / "sglang/srt/arg_groups").mkdir(parents=True, exist_ok=True)
        (site / "sglang/__init__.py").touch()
        (site / "sglang/srt/server_args.py").write_text(SERVER_ARGS)
        (site / f"sglang-{version}.dist-info").mkdir()
        metadata = f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n"
        (site / f"sglang-{version}.dist-info/METADATA").write_text(metadata)
        return script(tmp_path, f'PYTHONPATH="{site}" exec "{sys.executable}" -S "$@"')

    return make


def script(folder: Path, body: str) -> Path:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def reads(tmp_path: Path) -> int:
    """How often SGLang was imported."""
    path = tmp_path / "imported"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_every_kind_of_flag(engine: Engine) -> None:
    parser = installed_parser(engine("9.9"))
    tp = Flag("tp_size", "one", default=1, number="int")
    both = Flag("both", "nothing", default=True, bare=True)
    assert parser.flags == {
        "tp-size": tp,
        "tensor-parallel-size": tp,
        "backend": Flag("backend", "one", choices=("a", "b")),
        "page": Flag("page", "one", choices=("16", "32"), number="int"),
        "plain": Flag("plain", "nothing", default=False, bare=True),
        "old": Flag("old", "nothing", deprecated=True, bare=True),
        "older": Flag("older", "one", deprecated=True),
        "both": both,
        "no-both": both,
        "many": Flag("many", "many"),
        "some": Flag("some", "many", default=[], bare=True),
        "perhaps": Flag("perhaps", "one", bare=True),
        "odd": Flag("odd", "one", default="Odd()"),
    }
    assert parser.versions["sglang"] == "9.9"
    assert parser.versions["python"] == sys.version.split()[0]
    assert "torch" not in parser.versions


def test_asked_once(engine: Engine, tmp_path: Path) -> None:
    python = engine("9.9")
    first = installed_parser(python)
    assert installed_parser(python) == first
    assert reads(tmp_path) == 1


def test_asked_again_after_an_upgrade(engine: Engine, tmp_path: Path) -> None:
    assert installed_parser(engine("9.8")).versions["sglang"] == "9.8"
    assert installed_parser(engine("9.9")).versions["sglang"] == "9.9"
    assert reads(tmp_path) == 2


@pytest.mark.parametrize("name", ["server_args.py", "arg_groups/fields.py"])
def test_asked_again_after_an_edit(name: str, engine: Engine, tmp_path: Path) -> None:
    python = engine("9.9")
    installed_parser(python)
    file = tmp_path / "site/sglang/srt" / name
    file.touch()
    later = time.time() + 60
    os.utime(file, (later, later))
    installed_parser(python)
    assert reads(tmp_path) == 2


@pytest.mark.parametrize("damage", ["cut", "same size", "gone", "no manifest", "wrong shape"])
def test_a_damaged_cache_is_made_again(
    damage: str, engine: Engine, tmp_path: Path, cache: Path
) -> None:
    python = engine("9.9")
    good = installed_parser(python)
    (flags,) = cache.glob("*/flags.json")
    size = flags.stat().st_size
    if damage == "cut":
        flags.write_bytes(flags.read_bytes()[: size // 2])
    elif damage == "same size":
        flags.write_bytes(b"x" * size)
    elif damage == "gone":
        flags.unlink()
    elif damage == "no manifest":
        (flags.parent / "sweeper-manifest.json").unlink()
    else:
        flags.write_bytes(b'[{"dest":"x"}]'.ljust(size))
    assert installed_parser(python) == good
    assert reads(tmp_path) == 2
    assert installed_parser(python) == good
    assert reads(tmp_path) == 2


def test_a_folder_named_sglang_here_is_not_the_installed_one(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here/sglang").mkdir(parents=True)
    (tmp_path / "here/sglang/__init__.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path / "here")
    assert "tp-size" in installed_parser(engine("9.9")).flags


def test_no_interpreter(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="cannot be started") as caught:
        installed_parser(tmp_path / "none")
    assert caught.value.where == str(tmp_path / "none")
    assert "engine.python" in str(caught.value)


@pytest.mark.parametrize(
    "body", ["echo hello", "exit 0", "echo 'Traceback: broken' >&2; exit 1", "echo '[1]'"]
)
def test_no_python(body: str, tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="no Python interpreter that works") as caught:
        installed_parser(script(tmp_path, body))
    assert "engine.python" in str(caught.value)


def test_no_sglang(tmp_path: Path) -> None:
    bare = script(tmp_path, f'exec "{sys.executable}" -I -S "$@"')
    with pytest.raises(MachineError, match="SGLang is not installed") as caught:
        installed_parser(bare)
    assert 'pip install "sweeper[engine]"' in str(caught.value)
    assert "engine.python" in str(caught.value)


def test_an_sglang_that_cannot_be_imported(engine: Engine, tmp_path: Path, cache: Path) -> None:
    python = engine("9.9")
    (tmp_path / "site/sglang/srt/server_args.py").write_text("import does_not_exist")
    with pytest.raises(MachineError, match="could not read SGLang's flags") as caught:
        installed_parser(python)
    assert "does_not_exist" in str(caught.value)
    assert list(cache.glob("*/flags.json")) == []


@pytest.fixture
def real() -> InstalledParser:
    return installed_parser(Path(sys.executable))


@pytest.mark.engine
def test_the_installed_sglang(real: InstalledParser) -> None:
    """Read on any machine; one without a GPU needs no platform named for it."""
    assert {"sglang", "torch", "transformers", "python"} <= set(real.versions)
    assert len(real.flags) > 300
    assert real.flags["tp-size"] is real.flags["tensor-parallel-size"]
    backend = real.flags["attention-backend"]
    assert backend.takes == "one"
    assert {"torch_native", "triton", "flashinfer"} <= set(backend.choices or ())
    assert real.flags["disable-custom-all-reduce"].takes == "nothing"
    assert real.flags["cuda-graph-bs-decode"].takes == "many"
    assert real.flags["disable-cuda-graph"].deprecated
    assert not real.flags["disable-custom-all-reduce"].deprecated
    begin = time.monotonic()
    assert installed_parser(Path(sys.executable)) == real
    assert time.monotonic() - begin < 2  # it was not imported again, which takes longer
