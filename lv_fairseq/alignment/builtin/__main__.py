"""``python FOLDER -i corpus ...``: the built-in aligner as a program of its own, which needs Python and numpy only."""

import importlib
import os
import sys

if __name__ == "__main__":
    # Its own threads share the work (OMP_NUM_THREADS of them): those of a matrix library would only be in the way.
    for library in ("OPENBLAS", "MKL", "BLIS", "VECLIB"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    # This folder, run by its path, is no package yet: it becomes one, of its own name.
    above, name = os.path.split(os.path.dirname(os.path.abspath(__file__)))
    sys.path[0] = above
    importlib.import_module(f"{name}.command").main(sys.argv)
