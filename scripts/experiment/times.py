"""The paper's table of decoding times: one decoding after the other, on one thread, with nothing beside."""

from typing import Dict, List, Sequence

from experiment.decoding import SCORES, Decoder
from experiment.rows import Row
from experiment.stages import Stages


def timed(table: Sequence[Row], ids: Sequence[str]) -> List[Row]:
    """The rows to time: some of the table without replacement, and the last with one list for all of the input."""
    rows = [next(row for row in table if row.id == id) for id in ids]
    shared = rows[-1]._replace(
        id=f"{ids[-1]}-shared",
        title=f"{rows[-1].title}, one list for all of the input",
        lists=[*rows[-1].lists, "--candidate-scope", "corpus"],
    )
    return [*rows, shared]


def decoding_times(rows: Sequence[Row], decoder: Decoder, stages: Stages) -> List[Dict]:
    """What results.json says of the time a word of the test set takes, loading not counted."""
    found = []
    for row in rows:
        name = f"time.{row.id}"
        with stages.one_thread():
            work = lambda row=row, name=name: decoder.generate(name, "test", row, row.replicas[0])
            figures = stages.stage(name, work, dict, SCORES)
        about = {"id": row.id, "name": row.title, "threads": 1, "ms_per_word": figures["ms_per_word"]}
        found.append({**about, "bleu": figures["bleu"], "mean_list": figures["decoding"].get("mean_list")})
    return found
