"""Every difference between the supported fairseq and torch versions, and nothing else.

==============  ===========  ==========================
Python          fairseq      from PyPI as
==============  ===========  ==========================
3.9, 3.10       0.12.2       ``fairseq``
3.11 and later  0.12.3.1     ``fairseq-fixed``
==============  ===========  ==========================
"""

import argparse
import os

import torch


def keep_safe_loading() -> None:
    """Let torch's safe loader read fairseq's checkpoints, and keep it on where it is not the default yet.

    fairseq stores an ``argparse.Namespace`` in a checkpoint, the only class there that the loader does not know.
    The loader is the default since torch 2.6; before, fairseq calls ``torch.load`` without asking for it.
    """
    torch.serialization.add_safe_globals([argparse.Namespace])
    os.environ.setdefault("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")
