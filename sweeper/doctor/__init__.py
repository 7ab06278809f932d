"""What is on this machine, what earlier sweeps left on it, and its removal."""

from sweeper.doctor.examine import examine
from sweeper.doctor.findings import Findings
from sweeper.doctor.leftovers import clean
from sweeper.doctor.text import text

__all__ = ["Findings", "clean", "examine", "text"]
