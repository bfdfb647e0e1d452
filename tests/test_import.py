"""``import lv_fairseq`` in a user's program changes nothing outside it; `register` does what ``--user-dir`` does."""

from conftest import run_code

WATCH = """
import argparse, fileinput, os, pickle, sys
import torch, fairseq.models
from fairseq import checkpoint_utils, optim, tasks
from fairseq.data import data_utils
from fairseq.file_io import PathManager

class Own:
    pass

def state():
    return (dict(os.environ), sys.excepthook, argparse._HelpAction.__call__, fileinput.hook_encoded, sys.stdin.encoding,
            torch.load, checkpoint_utils.torch, checkpoint_utils.load_checkpoint_to_cpu, optim.build_optimizer,
            data_utils.batch_by_size, PathManager.copy, sorted(tasks.TASK_REGISTRY),
            sorted(fairseq.models.MODEL_REGISTRY), torch.serialization.get_safe_globals(),
            hasattr(fairseq.models.fconv, "eval"))

before = state()
"""


def test_importing_the_package_changes_nothing_outside_it(tmp_path):
    code = WATCH + (
        "import lv_fairseq\n"
        "lv_fairseq.Lexicon, lv_fairseq.partition, lv_fairseq.UserError\n"
        "assert state() == before\n"
        f"torch.save(Own(), {str(tmp_path / 'own.pt')!r})\n"
        f"assert isinstance(torch.load({str(tmp_path / 'own.pt')!r}, weights_only=False), Own)\n"
        "print('done')\n"
    )
    result = run_code(code, tmp_path)
    assert result.stdout == "done\n", result.stderr


def test_register_does_what_user_dir_does_and_sets_no_environment_variable(tmp_path):
    code = WATCH + (
        "import lv_fairseq\n"
        "lv_fairseq.register()\n"
        "lv_fairseq.register()\n"
        "assert dict(os.environ) == before[0]\n"
        "from fairseq.criterions import CRITERION_REGISTRY\n"
        "assert 'lv_translation' in tasks.TASK_REGISTRY and 'partition_cross_entropy' in CRITERION_REGISTRY\n"
        "assert {'rnnsearch', 'rnnsearch_small'} <= set(fairseq.models.MODEL_REGISTRY)\n"
        f"torch.save(Own(), {str(tmp_path / 'own.pt')!r})\n"
        f"assert isinstance(torch.load({str(tmp_path / 'own.pt')!r}, weights_only=False), Own)\n"
        "try:\n"
        "    raise lv_fairseq.UserError('a line')\n"
        "except Exception:\n"
        "    print('caught')\n"
        "try:\n"
        "    raise lv_fairseq.UserError('what to do')\n"
        "except Exception:\n"
        "    raise ValueError('something else, said by fairseq')\n"
    )
    result = run_code(code, tmp_path)
    assert result.stdout == "caught\n" and result.returncode == 1
    assert result.stderr == "what to do\n"
