"""A user's mistake: one line that says what to do, no stack trace, nothing damaged."""

import shutil

import fairseq.options
import pytest
from conftest import ADAM, PLUGIN, SMALL, generate_here, run, run_code, train
from fairseq import tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from lv_fairseq import UserError
from lv_fairseq.fairseq_patches.commands import open_input


def refuses(result, *words):
    """The command failed, its last line says why, and no stack trace was printed."""
    printed = result.stdout + result.stderr
    assert result.returncode in (1, 2), printed
    assert "Traceback" not in printed, printed
    last = result.stderr.strip().splitlines()[-1]
    assert all(word in last for word in words), last


def refused(data, *flags):
    """Why fairseq-train refuses some flags, as far as it comes before its first update, without a process for each."""
    flags = [str(x) for x in (data, "--task", "lv_translation", *SMALL, *ADAM, *flags)]
    args = fairseq.options.parse_args_and_arch(fairseq.options.get_training_parser(), flags)
    cfg = convert_namespace_to_omegaconf(args)
    with pytest.raises(UserError) as error:
        task = tasks.setup_task(cfg.task)
        task.build_model(cfg.model)
        task.load_dataset(cfg.dataset.train_subset)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    "options, words",
    [
        (("--share-decoder-input-output-embed", "--decoder-embed-dim", 32), ["--decoder-embed-dim 32", "equal sizes"]),
        (("--share-all-embeddings",), ["--joined-dictionary"]),
        (("--attention-dim", 0), ["--attention-dim", "at least 1"]),
        (("--encoder-hidden-size", -5), ["--encoder-hidden-size", "at least 1"]),
        (("--dropout", 1.5), ["--dropout", "1.5"]),
        (("--sort-window", -1), ["--sort-window"]),
        (("--left-pad-target",), ["--left-pad-target"]),
    ],
)
def test_options_that_do_not_go_together(data, options, words):
    assert all(word in refused(data, *options) for word in words)


def test_a_mistake_ends_training_in_one_line_before_anything_is_written(data, tmp_path):
    result = train(data, tmp_path, *SMALL, *ADAM, "--share-all-embeddings", check=False)
    refuses(result, "--joined-dictionary")
    assert not list(tmp_path.glob("*.pt"))


@pytest.mark.parametrize("seed", [2**40, 2**32 - 1, -1])  # fairseq adds 1 in its first epoch
def test_a_seed_that_numpy_does_not_take(data, tmp_path, seed):
    result = train(data, tmp_path, *SMALL, *ADAM, "--max-update", 1, f"--seed={seed}", check=False)
    refuses(result, "--seed", "between 0 and 2**32 - 1")


def test_what_fairseq_asserts_about_flags_is_told_in_one_line(drawn, data, tmp_path):
    decoding = (data, *PLUGIN, "--path", drawn / "one.pt")
    refuses(run("fairseq-validate", *decoding, check=False), "--max-tokens or --batch-size")
    refuses(run("fairseq-generate", data, *PLUGIN, check=False), "--path required")
    refuses(train(data, tmp_path, *SMALL, "--max-tokens", 1000, check=False), "--optimizer is required")
    refuses(run("fairseq-interactive", *decoding, "--batch-size", 3, check=False), "larger than --buffer-size")


def test_an_input_that_cannot_be_read(drawn, data, tmp_path):
    command = ("fairseq-interactive", data, *PLUGIN, "--path", drawn / "one.pt", "--input")
    refuses(run(*command, tmp_path / "missing", check=False), f"--input {tmp_path / 'missing'}", "No such file")
    with pytest.raises(UserError, match="directory"):
        open_input(str(tmp_path), "r")


def test_a_mistake_in_somebodys_program_is_shown_whole(tmp_path):
    register = "import lv_fairseq; lv_fairseq.register(); "
    for mistake in ("assert False, '--flag is mine'", "import numpy; numpy.random.seed(-1)"):
        assert "Traceback" in run_code(register + mistake, tmp_path).stderr


def test_a_data_folder_that_is_missing_or_incomplete(data, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    no_dictionary = shutil.copytree(data, tmp_path / "copy")
    (no_dictionary / "dict.tgt.txt").unlink()
    for refusal, word in (
        (refused(tmp_path / "nowhere"), "nowhere"),
        (refused(empty), "empty"),
        (refused(no_dictionary), "dict.tgt.txt"),
        (refused(data, "--train-subset", "other"), "other"),
    ):
        assert word in refusal and "fairseq-preprocess" in refusal


def test_a_sentence_longer_than_the_limit(drawn, data, tmp_path):
    model = drawn / "one.pt"
    long = ("--max-source-positions", 6)
    command = ("fairseq-generate", data, *PLUGIN, "--path", model, *long)
    refuses(run(*command, check=False), "max_positions=(6, ", "--skip-invalid-size-inputs-valid-test")
    skipped = run(*command, "--skip-invalid-size-inputs-valid-test", "--max-len-b", 5)
    assert "will be skipped" in skipped.stdout + skipped.stderr

    interactive = ("fairseq-interactive", data, *PLUGIN, "--path", model, *long, "--max-len-b", 5)
    answered = run(*interactive, stdin="ba " * 10 + "\nba\n")
    assert "only the first 5" in answered.stderr and answered.stdout.count("\nD-") == 2

    result = train(
        data, tmp_path, *SMALL, *ADAM, "--max-source-positions", 8, "--max-update", 2, "--disable-validation"
    )
    assert "will be skipped" in result.stdout + result.stderr


def test_empty_lines_in_training_text_do_no_harm(tmp_path):
    for split in ("train", "valid"):
        (tmp_path / f"{split}.src").write_text("a b c\n\nb c\n\n" * 10)
        (tmp_path / f"{split}.tgt").write_text("x y\nz\n\n\n" * 10)
    pairs = ("--trainpref", tmp_path / "train", "--validpref", tmp_path / "valid", "--testpref", tmp_path / "valid")
    run("fairseq-preprocess", "-s", "src", "-t", "tgt", *pairs, "--destdir", tmp_path / "bin")
    result = train(tmp_path / "bin", tmp_path, *SMALL, *ADAM, "--max-update", 3)
    assert "nan" not in (result.stdout + result.stderr).lower()
    assert generate_here(tmp_path / "bin", tmp_path / "checkpoint_last.pt").count("\nH-") == 40


def test_a_checkpoint_of_other_dictionaries_or_sizes(drawn, data, tmp_path):
    model = drawn / "one.pt"
    swapped = shutil.copytree(data, tmp_path / "swapped")
    lines = (data / "dict.tgt.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    (swapped / "dict.tgt.txt").write_text("".join(reversed(lines)), encoding="utf-8")
    refuses(run("fairseq-generate", swapped, *PLUGIN, "--path", model, check=False), "other dictionaries")
    flags = (*SMALL, *ADAM, "--readout-dim", 32, "--restore-file", model)
    refuses(train(data, tmp_path, *flags, check=False), "another model", "size mismatch")
