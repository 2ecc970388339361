from __future__ import annotations

from hypothesis import settings

# A kernel's first call compiles it: no example may be timed.
settings.register_profile("compiled", deadline=None)
settings.register_profile("uncompiled", deadline=None, max_examples=15)
settings.load_profile("compiled")
