"""The rows of the paper's table: which checkpoints decode which data, how, and with which rows each is compared."""

from pathlib import Path
from typing import Dict, List, NamedTuple


class Row(NamedTuple):
    id: str
    title: str
    note: str  # what it is
    against: List[str]  # rows before it
    paths: List[Path]
    data: Path
    flags: List
    replace: bool  # unknown words

    @property
    def search(self) -> tuple:
        """All that matters for what the search finds."""
        return self.paths, self.data, self.flags


def rows(
    config: Dict, models: Dict[str, List[Path]], shortlist: Path, full: Path, words: int, k: int, per_word: int
) -> List[Row]:
    """
    Args:
        config: see config.py
        models: checkpoints of "rnnsearch", "lv", "reshuffle", "frozen" and "ensemble"
        shortlist, full: binarised text with the words of the baseline, and with all words
        words: of the target in the latter
        k, per_word: K and K'
    """
    lists = ["--candidate-frequent", k, "--candidate-per-word", per_word]
    baseline, lv, reshuffle, frozen, ensemble = (
        models[name] for name in ("rnnsearch", "lv", "reshuffle", "frozen", "ensemble")
    )
    few = f"knows the {config['shortlist']:,} most frequent words of both sides"
    all_words = f"knows all {words:,} target words of the data, tau = {config['tau']:,}; decoded over all of them"
    short = f"the same model, decoded with K = {k:,} and K' = {per_word:,}"
    unk, replaced = "UNK replace", "the same, and unknown words are replaced"
    again = "another training, with new partitions every epoch"
    tuned = "that model, trained on with its word vectors frozen"
    many = f"{len(ensemble)} models: points of all trainings with all words, each trained on with frozen word vectors"
    return [
        Row("rnnsearch", "RNNsearch", few, [], baseline, shortlist, [], False),
        Row("rnnsearch-unk", f"RNNsearch + {unk}", replaced, ["rnnsearch"], baseline, shortlist, [], True),
        Row("lv", "RNNsearch-LV", all_words, ["rnnsearch"], lv, full, [], False),
        Row("lv-list", "+ candidate list", short, ["lv"], lv, full, lists, False),
        Row("lv-unk", f"+ {unk}", replaced, ["lv-list", "rnnsearch-unk"], lv, full, lists, True),
        Row("reshuffle", "+ reshuffle", again, ["lv-unk"], reshuffle, full, lists, True),
        Row("frozen", "+ frozen word vectors", tuned, ["reshuffle"], frozen, full, lists, True),
        Row("ensemble", "+ ensemble", many, ["lv-unk", "frozen"], ensemble, full, lists, True),
    ]
