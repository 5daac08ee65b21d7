"""Whether runs go through their code anew after every step: a switch for tests, see everstep.testing.always_replay."""

from __future__ import annotations

replays = False
