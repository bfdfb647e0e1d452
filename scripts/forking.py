"""Runs a Python command whose processes are killed if it is, which most would notice after their work only.

python forking.py COMMAND ARGUMENTS
"""

import functools
import os
import runpy
import sys

from lv_fairseq.processes import die_with

if __name__ == "__main__":
    os.register_at_fork(after_in_child=functools.partial(die_with, os.getpid()))
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(sys.argv[0])  # as if it had been started by itself
    runpy.run_path(sys.argv[0], run_name="__main__")
