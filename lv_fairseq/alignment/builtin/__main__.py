"""``python FOLDER -i corpus ...``: the built-in aligner as a program of its own, which needs Python and numpy only."""

import os
import sys

if __name__ == "__main__":
    # Its own threads share the work (OMP_NUM_THREADS of them): those of a matrix library would only be in the way.
    for library in ("OPENBLAS", "MKL", "BLIS", "VECLIB"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[0] = os.path.dirname(here)

    from builtin.command import main  # this folder

    main(sys.argv)
