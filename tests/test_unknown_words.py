"""Names and numbers outside both vocabularies, with a network that translates word for word (networks.py)."""

import json
import os
import subprocess
import sys

import fairseq.options
import numpy as np
import pytest
import sacrebleu
import torch
from conftest import BIN, PLUGIN, ROOT, SMALL, WORDS, generate_here, hypotheses, run, train
from fairseq import checkpoint_utils, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from lv_fairseq import Lexicon, UserError, results
from lv_fairseq.decoding import OpenDictionary
from lv_fairseq.decoding.unknown_words import replacement
from lv_fairseq.lexicon.entries import Entries


def translation(source, rule):
    """What the network and the rule make of a line. It does not see <pad>."""
    words = []
    for word in source.split():
        if word[0] == "s":
            words.append("t" + word[1:])
        elif word != "<pad>":
            lexicon = rule == "lexicon" or rule == "lexicon-lowercase" and word[0].islower()
            words.append({"none": "<unk>"}.get(rule) or (WORDS.get(word, word) if lexicon else word))
    return " ".join(words)


def translations(path, rule):
    return [translation(line, rule) for line in path.read_text("utf-8").splitlines()]


def decode(folder, *options):
    return generate_here(folder / "data", folder / "model.pt", "--beam", 3, *options)


@pytest.mark.parametrize("rule", ["copy", "lexicon", "lexicon-lowercase"])
def test_names_and_numbers_arrive_in_generate(names, rule):
    options = ("--unk-replacement", rule, "--source-text", names / "test.src", "--lexicon", names / "lexicon")
    output = decode(names, *options, "--nbest", 2)
    best = output.splitlines()
    best = [line for i, line in enumerate(best) if line.startswith("D-") and best[i - 2].startswith("T-")]
    assert hypotheses("\n".join(best)) == translations(names / "test.src", rule)
    assert "<unk>" not in "".join(line for line in output.splitlines() if line[:2] in ("H-", "D-"))


def test_without_the_text_a_source_word_is_unknown_too(names):
    output = hypotheses(decode(names, "--unk-replacement", "copy"))
    assert output == translations(names / "test.src", "none") and "<unk>" in " ".join(output)


def test_special_symbols_in_the_text_move_no_word(names):
    """The attention's places are those of the words, wherever padding is."""
    options = ("--gen-subset", "valid", "--unk-replacement", "copy", "--source-text", names / "valid.src")
    lists = ("--candidate-frequent", 20, "--lexicon", names / "lexicon")
    for more in ((), ("--left-pad-source",), (*lists, "--batch-size", 1)):
        assert hypotheses(decode(names, *options, *more)) == translations(names / "valid.src", "copy")


def test_a_text_may_be_longer_than_sentences_that_are_cut(names):
    options = ("--truncate-source", "--max-source-positions", 4, "--unk-replacement", "copy")
    output = hypotheses(decode(names, *options, "--source-text", names / "test.src"))
    lines = (names / "test.src").read_text("utf-8").splitlines()
    assert output == [translation(" ".join(line.split()[:3]), "copy") for line in lines]


def test_an_empty_line_has_an_empty_translation_and_alignment(names):
    output = decode(names, "--gen-subset", "valid", "--print-alignment", "soft").splitlines()
    empty = [line.split("\t")[1:] for line in output if line[2:].startswith("3\t")]  # S, T, H, D, P, A
    assert empty == [[""], [""], ["0.0", ""], ["0.0", ""], ["0.0000"], [""]]


def interactive(folder, *options, **how):
    command = (BIN / "fairseq-interactive", folder / "data", *PLUGIN, "--path", folder / "model.pt", "--beam", 3)
    result = subprocess.run([str(x) for x in (*command, *options)], capture_output=True, cwd=ROOT, **how)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.decode(), result.stderr.decode()


def test_they_arrive_in_interactive_in_order_and_in_batches(names):
    options = ("--unk-replacement", "lexicon-lowercase", "--lexicon", names / "lexicon")
    batches = ("--buffer-size", 25, "--batch-size", 7)
    output, told = interactive(names, *options, *batches, input=(names / "test.src").read_bytes())
    assert hypotheses(output) == translations(names / "test.src", "lexicon-lowercase")
    sentence, line = told.splitlines()[-2:]  # for people, and the same as data
    assert "60 sentences" in sentence and "unknown words replaced" in sentence
    figures = results.in_output(told)
    assert figures == json.loads(line)["lv_fairseq"] and figures["sentences"] == 60 and figures["mean_list"] is None
    assert f"{figures['replaced']:,} of {figures['unknown']:,} unknown words replaced" in sentence


def test_candidate_lists_do_not_depend_on_the_batch(names):
    lists = ("--candidate-frequent", 10, "--candidate-per-word", 2, "--lexicon", names / "lexicon")
    options = (*lists, "--unk-replacement", "copy", "--source-text", names / "test.src")
    for size in (1, 64):
        assert hypotheses(decode(names, *options, "--batch-size", size)) == translations(names / "test.src", "copy")


def listed(output):
    """The lines of --print-candidates, by the number of their sentence."""
    lines = [line.split("\t", 1) for line in output.splitlines() if line.startswith("L-")]
    return {int(number[2:]): text for number, text in lines}


def test_a_list_without_the_right_words_gives_unknown_words_and_says_why(names):
    lists = ("--candidate-frequent", 10, "--candidate-per-word", 1, "--lexicon", names / "lexicon")
    lines = listed(decode(names, *lists, "--print-candidates"))
    assert sorted(lines) == list(range(60)) and all(" words\t" in line for line in lines.values())
    assert any("not in the dictionary" in line for line in lines.values())


def test_the_list_that_is_shown_is_that_of_the_hypothesis(names):
    """Sentences that do not end in six words are decoded again, the others are not; words after a tab are asked for."""
    frequent = (names / "data" / "dict.tgt.txt").read_text("utf-8").split()[::2]
    last = max(set(WORDS.values()) - {"t1", "t2", "t3", "t4", "t5"}, key=frequent.index)
    typed = f"s1 s2\tt1 {last} nothing\n" + "s3 " * 8 + "\ts39\ns4\n" + "s5 " * 7 + f"\tt5 {last}\n"
    options = ("--batch-size", 3, "--buffer-size", 3, "--max-len-a", 0, "--max-len-b", 6, "--candidate-retries", 1)
    options += ("--candidate-frequent", 10, "--candidate-per-word", 1, "--lexicon", names / "lexicon")
    output, told = interactive(names, *options, "--print-candidates", input=typed.encode())
    lines = listed(output)
    for number, (k, words) in enumerate([(10, {"t1", "t2"}), (20, {"t3"}), (10, {"t4"}), (20, {"t5"})]):
        size = 4 + k + len(words - set(frequent[:k]))  # four special symbols
        assert lines[number].startswith(f"{size} words\t")
    rank = frequent.index(last) + 1
    assert f"{last} (number {rank} by frequency, K = 10; no" in lines[0] and "nothing (not in the" in lines[0]
    assert f"{last} (number {rank} by frequency, K = 20; no" in lines[3]
    assert "t1 (" not in lines[0] and "t5 (" not in lines[3]
    assert "s39 (not in the dictionary)" in lines[1] and "no reference" in lines[2]
    assert "2 sentences decoded again" in told


def test_a_dictionary_may_grow_while_fairseq_scores(names):
    """fairseq adds the words of references and translations to it if it takes subwords together."""
    grow = ("--post-process", "sentencepiece", "--batch-size", 2)
    for options in (
        ("--ensemble-mean", "log-probability"),
        ("--candidate-frequent", 40, "--max-len-a", 0, "--max-len-b", 3),  # decoded again with 80, more than there are
    ):
        assert len(hypotheses(decode(names, *options, *grow))) == 60


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


@pytest.mark.parametrize("typed", [True, False])
def test_interactive_answers_whatever_comes(names, tmp_path, typed):
    """One line after the other from the standard input, or in batches from a file, without a standard input."""
    first = (names / "test.src").read_bytes().split(b"\n")[0]
    answers = {first: translation(first.decode(), "copy"), b"": "", b"s3 " * 5000: None}
    answers.update({b"s1 \x00\x01\x1b s2": "t1 \x00\x01\x1b t2", b"\xff\xfe s4": "\ufffd\ufffd t4"})
    answers.update({"漢字 кириллица".encode(): "漢字 кириллица", b"s5 \r s6": "t5 t6", b"  ": ""})
    answers.update({b"s1\xe2\x80\xa8s2": "t1 t2", b"s1 </s> Mc1 s2 Mc2": "t1 </s> Mc1 t2 Mc2"})
    answers.update({b"Mc1 <pad> Mc2 s3 <s> Mc3": "Mc1 Mc2 t3 <s> Mc3", b"Mc2 Mc1": "Mc2 Mc1", b"O O": "O O"})
    lines = [*answers, first]
    text = b"\xef\xbb\xbf" + b"\n".join(lines)  # with a byte order mark
    options = ("--candidate-frequent", 10, "--candidate-per-word", 2, "--lexicon", names / "lexicon")
    options += ("--unk-replacement", "copy")
    if typed:
        output, told = interactive(names, *options, input=text)
    else:
        (tmp_path / "lines").write_bytes(text)
        options += ("--input", tmp_path / "lines", "--buffer-size", 20, "--batch-size", 3)
        output, told = interactive(names, *options, preexec_fn=lambda: os.close(0))
    written = [line.split("\t") for line in output.split("\n") if line.startswith("D-")]
    assert [int(line[0][2:]) for line in written] == list(range(len(lines)))
    for line, (_, _, text) in zip(lines, written):
        assert answers[line] is None or text == answers[line], line
    assert "only the first 1,023" in told


@pytest.mark.parametrize(
    "options, words",
    [
        (("--candidate-frequent", 10, "--candidate-per-word", 2), ["--lexicon"]),
        (("--candidate-frequent", 1000), ["1000", "60 words"]),
        (("--candidate-frequent", -1), ["--candidate-frequent"]),
        (("--candidate-frequent", 10, "--candidate-retries", -1), ["--candidate-retries", "0 or more", "-1"]),
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
    flags = [str(x) for x in (names / "data", *PLUGIN, "--path", names / "model.pt", *options)]
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
    options = ("--path", names / "model.pt", "--candidate-frequent", 1000)
    result = run("fairseq-generate", names / "data", *PLUGIN, *options, check=False)
    assert result.returncode == 1 and "Traceback" not in result.stdout + result.stderr, result.stderr
    assert "60 words" in result.stderr.strip().splitlines()[-1] and "\nH-" not in result.stdout


def test_corpus_scope_is_refused_in_interactive(names, monkeypatch):
    monkeypatch.setitem(sys.modules, "fairseq_cli.interactive", None)  # as if this were its process
    refused(names, ("--candidate-frequent", 10, "--candidate-scope", "corpus"), ["fairseq-generate"])


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
    numbers = [words.number_of(word) for word in ("new", "known", "<unk>", "other", "more")]
    assert numbers[1] == known and len(words) == 5 and words.index("new") == words.unk()
    assert words.string(torch.tensor([known, *numbers[3:]])) == "known other more"


def test_a_dictionary_knows_words_as_long_as_their_hypothesis_is_there():
    words = OpenDictionary()
    words.WHILE = 2 * sys.getsizeof("word 0")
    hypotheses = [torch.tensor([words.eos(), words.number_of(f"word {i}")]) for i in range(9)]
    for hypothesis in hypotheses:
        words.forget_with(hypothesis, hypothesis.tolist())
    numbers = [int(hypothesis[1]) for hypothesis in hypotheses]
    del hypothesis
    for _ in range(6):
        del hypotheses[0]
    expected = [words.unk_word] * 4 + [f"word {i}" for i in range(4, 9)]  # two more than are needed
    assert [words[number] for number in numbers] == expected


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
