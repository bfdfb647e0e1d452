"""Names and numbers outside both vocabularies, through the commands, with a model trained here."""

import random
import subprocess

import fairseq.options
import numpy as np
import pytest
import sacrebleu
import torch
from conftest import ADAM, BIN, PLUGIN, ROOT, SMALL, generate, hypotheses, run, train
from fairseq import checkpoint_utils, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from lv_fairseq import Lexicon, UserError
from lv_fairseq.generation import OpenDictionary
from lv_fairseq.generation.unknown_words import replacement
from lv_fairseq.lexicon.entries import Entries

RARE = 15


def sentence(chance: random.Random):
    """Source and target words: common words s0 ... s39, some rare words, and names that occur nowhere else."""
    source, target = [], []
    for _ in range(chance.randint(4, 8)):
        kind = chance.random()
        if kind < 0.8:
            number = chance.randrange(40)
            pair = f"s{number}", f"t{number}"
        elif kind < 0.9:
            number = chance.randrange(RARE)
            pair = f"rare{number}", f"selten{number}"
        else:
            pair = (chance.choice(["Mc", "O'", "1", "Ł"]) + str(chance.randrange(10**9)),) * 2
        source.append(pair[0])
        target.append(pair[1])
    return source, target


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """Text, data, lexicon and a trained model of this language; rare source words are in no dictionary."""
    folder = tmp_path_factory.mktemp("names")
    chance = random.Random(1)
    for split, size in (("train", 3000), ("valid", 50), ("test", 60)):
        pairs = [sentence(chance) for _ in range(size)]
        for side, name in enumerate(("src", "tgt")):
            (folder / f"{split}.{name}").write_text("".join(" ".join(pair[side]) + "\n" for pair in pairs), "utf-8")
    files = [x for split in ("train", "valid", "test") for x in (f"--{split}pref", folder / split)]
    sizes = ("--nwordssrc", 44, "--nwordstgt", 44 + RARE)
    run("fairseq-preprocess", "-s", "src", "-t", "tgt", *files, "--destdir", folder / "data", *sizes)
    texts = ("--source", folder / "train.src", "--target", folder / "train.tgt")
    dictionaries = [x for side in ("src", "tgt") for x in (folder / "data" / f"dict.{side}.txt",)]
    dictionaries = ("--source-dict", dictionaries[0], "--target-dict", dictionaries[1])
    run("lv-lexicon", "build", *texts, "--out", folder / "lexicon", *dictionaries)
    train(
        folder / "data",
        folder,
        *SMALL,
        *ADAM,
        "--dropout",
        0.2,
        "--max-epoch",
        14,
        "--no-epoch-checkpoints",
        "--disable-validation",
    )
    return folder


def references(folder, rule):
    """What a perfect model and the rule make of the test set."""
    lines = []
    for source in (folder / "test.src").read_text("utf-8").splitlines():
        words = []
        for word in source.split():
            if word.startswith("rare"):
                words.append(word if rule == "copy" else "selten" + word[4:])
            else:
                words.append("t" + word[1:] if word[0] == "s" else word)
        lines.append(" ".join(words))
    return lines


def right(lines, expected):
    return sum(line == other for line, other in zip(lines, expected))


def decode(folder, *options, **how):
    return generate(folder / "data", folder / "checkpoint_last.pt", "--beam", 3, *options, **how)


@pytest.mark.parametrize("rule", ["copy", "lexicon", "lexicon-lowercase"])
def test_names_and_numbers_arrive_in_generate(names, rule):
    options = ("--unk-replacement", rule, "--source-text", names / "test.src", "--lexicon", names / "lexicon")
    output = decode(names, *options, "--nbest", 2)
    best = output.splitlines()
    best = [line for i, line in enumerate(best) if line.startswith("D-") and best[i - 2].startswith("T-")]
    assert right(hypotheses("\n".join(best)), references(names, rule)) >= 50
    assert "<unk>" not in "".join(line for line in output.splitlines() if line[:2] in ("H-", "D-"))


def test_without_the_text_a_source_word_is_unknown_too(names):
    output = hypotheses(decode(names, "--unk-replacement", "copy"))
    assert any("<unk>" in line for line in output) and len(output) == 60


def test_they_arrive_in_interactive_in_order_and_in_batches(names):
    source = (names / "test.src").read_text("utf-8")
    options = ("--unk-replacement", "lexicon-lowercase", "--lexicon", names / "lexicon", "--beam", 3)
    command = ("fairseq-interactive", names / "data", *PLUGIN, "--path", names / "checkpoint_last.pt", *options)
    for batch in (("--buffer-size", 1), ("--buffer-size", 25, "--batch-size", 7)):
        result = run(*command, *batch, stdin=source)
        assert right(hypotheses(result.stdout), references(names, "lexicon-lowercase")) >= 50
        assert "60 sentences" in result.stderr and "unknown words replaced" in result.stderr


def test_candidate_lists_do_not_depend_on_the_batch(names):
    lists = ("--candidate-frequent", 10, "--candidate-per-word", 2, "--lexicon", names / "lexicon")
    options = (*lists, "--unk-replacement", "copy", "--source-text", names / "test.src")
    one, many = (hypotheses(decode(names, *options, "--batch-size", size)) for size in (1, 64))
    assert one == many and right(one, references(names, "copy")) >= 50


def test_a_list_without_the_right_words_gives_unknown_words_and_says_why(names):
    lists = ("--candidate-frequent", 10, "--candidate-per-word", 1, "--lexicon", names / "lexicon")
    output = decode(names, *lists, "--print-candidates")
    lines = [line for line in output.splitlines() if line.startswith("L-")]
    assert len(lines) == 60 and all(" words\t" in line for line in lines)
    assert any("not in the dictionary" in line for line in lines)
    command = ("fairseq-interactive", names / "data", *PLUGIN, "--path", names / "checkpoint_last.pt", *lists)
    result = run(*command, "--print-candidates", stdin="s1 s2\tt1 t39 nothing\ns3\n").stdout
    explained = [line for line in result.splitlines() if line.startswith("L-")]
    assert "t39" in explained[0] and "by frequency" in explained[0] and "nothing (not in the" in explained[0]
    assert "t1 (" not in explained[0] and "no reference" in explained[1]


def test_replaced_words_count_in_the_score_that_fairseq_prints(names):
    replaced = ("--unk-replacement", "lexicon", "--lexicon", names / "lexicon", "--source-text", names / "test.src")
    scores = []
    for options in ((), replaced, (*replaced, "--remove-bpe")):
        output = decode(names, *options)
        lines = [line.split("\t") for line in output.splitlines()]
        target = [line[1] for line in lines if line[0].startswith("T-")]
        written = [line[2] for line in lines if line[0].startswith("D-")]
        expected = sacrebleu.corpus_bleu(written, [target], tokenize="none", smooth_method="none", force=True).score
        scores.append(float(output.split("BLEU4 = ")[1].split(",")[0]))
        assert scores[-1] == pytest.approx(expected, abs=0.02)
    assert scores[0] < scores[1] == scores[2]


def test_interactive_answers_whatever_comes(names):
    first = (names / "test.src").read_bytes().split(b"\n")[0]
    lines = [first, b"", b"s3 " * 5000, b"s1 \x00\x01\x1b s2", b"\xff\xfe s4", "漢字 кириллица".encode()]
    lines += [b"s5 \r s6", b"  "]
    lines += [b"s1\xe2\x80\xa8s2", first]
    lists = ("--candidate-frequent", 10, "--candidate-per-word", 2, "--lexicon", names / "lexicon")
    options = (*lists, "--unk-replacement", "copy", "--beam", 3)
    expected = hypotheses(decode(names, *options, "--source-text", names / "test.src"))[0]
    command = (BIN / "fairseq-interactive", names / "data", *PLUGIN, "--path", names / "checkpoint_last.pt", *options)
    for buffer in (1, 10):
        result = subprocess.run(
            [str(x) for x in (*command, "--buffer-size", buffer)],
            input=b"\n".join(lines),
            capture_output=True,
            cwd=ROOT,
        )
        assert result.returncode == 0, result.stderr.decode()
        answers = [line for line in result.stdout.decode().split("\n") if line.startswith("D-")]
        assert [int(line.split("\t")[0][2:]) for line in answers] == list(range(len(lines)))
        texts = [line.split("\t")[2] for line in answers]
        assert texts[0] == texts[9] == expected and texts[1] == texts[7] == ""
        assert "\ufffd" in texts[4] and "漢字" in texts[5]


@pytest.mark.parametrize(
    "options, words",
    [
        (("--candidate-frequent", 10, "--candidate-per-word", 2), ["--lexicon"]),
        (("--candidate-frequent", 1000), ["1000", "60 words"]),
        (("--candidate-frequent", -1), ["--candidate-frequent"]),
        (("--lexicon", "nowhere"), ["nowhere", "lv-lexicon build"]),
        (("--unk-replacement", "lexicon"), ["--lexicon"]),
        (("--candidate-scope", "batch"), ["--candidate-frequent"]),
        (("--source-text", "nowhere"), ["nowhere"]),
        (("--unk-replacement", "copy", "--source-text", "test.tgt"), ["line 1", "fairseq-preprocess"]),
        (("--unk-replacement", "copy", "--source-text", "valid.src"), ["50 lines", "60 sentences"]),
        (("--lexicon", "test.src"), ["test.src", "no lexicon"]),
        (("--candidate-frequent", 10, "--score-reference"), ["--score-reference"]),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_decoded(names, options, words):
    """As far as fairseq-generate comes before the first sentence, without starting a process for each."""
    refused(names, [names / x if str(x).startswith(("test.", "valid.")) else x for x in options], words)


def refused(names, options, words):
    flags = [str(x) for x in (names / "data", *PLUGIN, "--path", names / "checkpoint_last.pt", *options)]
    args = fairseq.options.parse_args_and_arch(fairseq.options.get_generation_parser(), flags)
    cfg = convert_namespace_to_omegaconf(args)
    with pytest.raises(UserError) as error:
        task = tasks.setup_task(cfg.task)
        models, _ = checkpoint_utils.load_model_ensemble([cfg.common_eval.path], task=task)
        task.load_dataset("test")
        task.build_generator(models, cfg.generation)
    assert all(word in str(error.value) for word in words) and "\n" not in str(error.value)


def test_a_lexicon_for_other_words_or_dictionaries_is_refused(names, tmp_path):
    table = {b"never": (b"x", -1.0)}
    for about, words in (
        ({"dictionaries": {}}, ["knows 0 of the"]),
        ({"dictionaries": {"target": 1}}, ["another target dictionary"]),
    ):
        entries = Entries()
        entries.add(list(table), [target for target, _ in table.values()], np.array([p for _, p in table.values()]))
        Lexicon.of(entries, about).save(tmp_path / "lexicon")
        refused(names, ("--lexicon", tmp_path / "lexicon", "--candidate-frequent", 10), words)


def test_a_mistake_ends_the_command_in_one_line(names):
    options = ("--path", names / "checkpoint_last.pt", "--candidate-frequent", 1000)
    result = run("fairseq-generate", names / "data", *PLUGIN, *options, check=False)
    assert result.returncode == 1 and "Traceback" not in result.stdout + result.stderr, result.stderr
    assert "60 words" in result.stderr.strip().splitlines()[-1] and "\nH-" not in result.stdout


def test_corpus_scope_is_refused_in_interactive(names):
    options = ("--candidate-frequent", 10, "--candidate-scope", "corpus")
    command = ("fairseq-interactive", names / "data", *PLUGIN, "--path", names / "checkpoint_last.pt", *options)
    result = run(*command, stdin="s1\n", check=False)
    assert result.returncode == 1 and "fairseq-generate" in result.stderr.strip().splitlines()[-1]


def test_validation_over_candidate_lists_and_bleu_while_training(names, tmp_path):
    lists = ("--candidate-frequent", 20, "--candidate-per-word", 3, "--lexicon", names / "lexicon")
    options = (*lists, "--validation-vocab", "candidates", "--criterion", "partition_cross_entropy", "--tau", 30)
    bleu = ("--eval-bleu", "--eval-bleu-args", '{"beam": 2}', "--unk-replacement", "copy")
    flags = ("--optimizer", "adam", "--lr", 0.005, "--max-tokens", 1000, "--max-update", 20)
    result = train(names / "data", tmp_path, *SMALL, *flags, *options, *bleu)
    line = next(line for line in (result.stdout + result.stderr).splitlines() if "valid on 'valid' subset" in line)
    assert "outside" in line and "bleu" in line


def test_a_dictionary_prints_words_that_it_does_not_hold():
    words = OpenDictionary()
    known = words.add_symbol("known")
    words.MOST = 3
    numbers = [words.number_of(word) for word in ("new", "known", "<unk>", "other", "more")]
    assert numbers[1] == known and len(words) == 5 and words.index("new") == words.unk()
    assert words.string(torch.tensor([known, *numbers[3:]])) == "known other more"
    assert words[numbers[0]] == "more"  # the oldest number is used again


@pytest.mark.parametrize(
    "word, rule, expected",
    [("haus", "lexicon", "house"), ("Haus", "lexicon-lowercase", "Haus"), ("haus", "lexicon-lowercase", "house")]
    + [("12", "lexicon-lowercase", "12"), ("ding", "lexicon", "ding"), ("haus", "copy", "haus")],
)
def test_the_rules(word, rule, expected):
    class Best:
        def best(self, word):
            return {"haus": "house", "12": "twelve"}.get(word)

    assert replacement(word, rule, Best()) == expected
