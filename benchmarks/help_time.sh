#!/usr/bin/env bash
# How long "python -m sweeper --help" takes, five times. Usage: benchmarks/help_time.sh [PYTHON]
set -euo pipefail
python=${1:-.venv/bin/python}
for _ in 1 2 3 4 5; do
  TIMEFORMAT='%R s'
  time "$python" -m sweeper --help >/dev/null
done
