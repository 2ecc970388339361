from __future__ import annotations

import os

from hypothesis import settings

# A kernel's first call compiles it: no example may be timed. Continuous integration tries the same examples every
# time; other runs try new ones.
SAME = "CI" in os.environ
settings.register_profile("compiled", deadline=None, derandomize=SAME)
settings.register_profile("uncompiled", deadline=None, derandomize=SAME, max_examples=15)
settings.load_profile("compiled")
