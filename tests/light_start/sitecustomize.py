"""Python runs this first in each process that tests start: Keras finds no scikit-learn and no Matplotlib there.

`import keras` loads both where they are installed, for a wrapper and for plots: half of its time, in hundreds of
processes, none of which uses them. A test that asks for `as_users_do` (tests/conftest.py) leaves them there.
"""

import sys

for module in ("sklearn", "matplotlib"):
    sys.modules[module] = None  # pyright: ignore[reportArgumentType] - Python's own way to say that it is not there
