"""Runs fairseq-train and kills it, as `kill -9` does, in the middle of a swap, a save, a copy, a
copy of table files or an update.

python killed.py MOMENT COUNT fairseq-train's arguments
"""

import fcntl
import os
import signal
import sys

import torch

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from fairseq import checkpoint_utils
from fairseq_cli.train import cli_main

import lv_fairseq
from lv_fairseq.word_tables import stored_tables
from lv_fairseq.word_tables.page import HostRows

lv_fairseq.register()

moment, left = sys.argv[1], int(sys.argv[2])


def kill_in(function, before=lambda *args: None):
    def killing(*args, **kwargs):
        global left
        left -= 1
        if left == 0:
            before(*args)
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)

    return killing


def half_a_checkpoint(obj, file):
    file.write(b"half a checkpoint")
    file.flush()


def nothing_shared(*unused):
    raise OSError("files share no blocks here")


if moment == "swap":
    HostRows.put_back = kill_in(HostRows.put_back)
elif moment == "save":
    save = checkpoint_utils._torch_persistent_save
    checkpoint_utils._torch_persistent_save = kill_in(save, half_a_checkpoint)
elif moment == "copy":
    fcntl.ioctl, os.link = nothing_shared, kill_in(os.link)
elif moment == "tables":
    stored_tables.share_or_copy = kill_in(stored_tables.share_or_copy, lambda source, copy: os.pwrite(copy, b"half", 0))
elif moment == "update":
    torch.Tensor.backward = kill_in(torch.Tensor.backward)
else:
    sys.exit(f"unknown moment {moment}")
sys.argv[1:] = sys.argv[3:]
cli_main()
