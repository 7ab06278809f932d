"""Virtual time: a start that takes 313 seconds is played in one, and its log says 313.

A start runs ``speed`` times faster than its timestamps tell. From the moment
that the server is ready, both run alike: what is measured then is real.
"""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass
class Clock:
    """Relates real time to what the log shows.

    The processes of one server share it: the monotonic clock is the machine's.

    Args:
        launched: moment of the launch, seconds since the epoch.
        real: a moment on the monotonic clock, in seconds.
        virtual: how many virtual seconds after the launch that moment is.
        speed: virtual seconds in a real one.
        pace: what the engine's own waits are divided by, also when ``speed`` is 1.
    """

    launched: float
    real: float
    virtual: float = 0.0
    speed: float = 1.0
    pace: float = 1.0

    @classmethod
    def start(cls, speed: float) -> Clock:
        """A clock that begins now.

        Raises:
            ValueError: the speed is not a positive number.
        """
        if not 0 < speed < float("inf"):
            raise ValueError(f"the speed of a start must be a positive number, not {speed}")
        return cls(time.time(), time.monotonic(), speed=speed, pace=speed)

    def now(self) -> float:
        """Virtual seconds since the launch."""
        return self.virtual + (time.monotonic() - self.real) * self.speed

    def until(self, virtual: float) -> float:
        """Real seconds from now to a virtual moment; none when it has passed."""
        return max(0.0, (virtual - self.now()) / self.speed)

    def sleep_until(self, virtual: float) -> None:
        """Wait for a virtual moment."""
        if (seconds := self.until(virtual)) > 0:
            time.sleep(seconds)

    def wait(self, seconds: float) -> float:
        """How long one of the engine's own waits of ``seconds`` really takes."""
        return seconds / self.pace

    def run_in_real_time(self) -> None:
        """Go on at speed 1 from now; the timestamps go on where they are."""
        self.virtual, self.real = self.now(), time.monotonic()
        self.speed = 1.0

    def stamp(self, milliseconds: bool = False) -> str:
        """Now, as SGLang writes it in front of a line."""
        moment = self.launched + self.now()
        text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))
        return f"{text}.{int(moment % 1 * 1000):03d}" if milliseconds else text
