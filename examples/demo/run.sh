#!/usr/bin/env bash
# The main job from nothing: make a corpus, binarise it with all its words, train RNNsearch over partitions of the
# vocabulary, make a lexicon, translate the test set over all words, over candidate lists and with unknown words replaced,
# see which names arrive and what it costs, and make a page of it.
# What is done already is not done again: training goes on from its last checkpoint. Start over with: rm -r runs/demo
#   examples/demo/run.sh [OUT] [PAIRS]
set -euo pipefail
source "$(dirname "$0")/../start.sh"
out=${1:+$(realpath -m "$1")}
out=${out:-runs/demo}
pairs=${2:-60000}
cd "$root"
plugin=(--user-dir lv_fairseq --task lv_translation)

trap 'echo "That did not work: the reason is at the end of the newest .log file in $out" >&2' ERR
step() { printf '\n== %s\n' "$*"; }

step "1. A corpus of two made-up languages: $out/text"
if [ ! -d "$out/text" ]; then
  $tied python scripts/demo_corpus.py --out "$out/text.part" --pairs "$pairs" --lemmas 1000 --max-clauses 2
  mv "$out/text.part" "$out/text"
fi

step "2. Binarised, with all words of the training text: $out/data"
if [ ! -d "$out/data" ]; then
  rm -rf "$out/data.part"
  $tied fairseq-preprocess --source-lang src --target-lang tgt --destdir "$out/data.part" --workers 2 \
    --trainpref "$out/text/train" --validpref "$out/text/valid" --testpref "$out/text/test" > "$out/preprocess.log" 2>&1
  mv "$out/data.part" "$out/data"
fi
grep -oE '\[(src|tgt)\] .*(train|test)\.(src|tgt): .*' "$out/preprocess.log"

step "3. Partitions of at most 8,000 target words"
$tied lv-partition "$out/data" --tau 8000 --max-tokens 2000

step "4. Training (about 4 minutes on 2 cores; all of the log is in $out/train.log)"
$tied fairseq-train "$out/data" "${plugin[@]}" --arch rnnsearch_small --dropout 0.1 \
  --optimizer adam --lr 0.003 --lr-scheduler inverse_sqrt --warmup-updates 200 --clip-norm 1.0 \
  --tau 8000 --hide-rare-words 20 --criterion partition_cross_entropy --label-smoothing 0.1 \
  --max-tokens 2000 --max-epoch 1 --save-dir "$out/model" --no-epoch-checkpoints \
  --log-format simple --log-interval 25 2>&1 | tee -a "$out/train.log" |
  { grep --line-buffered -o '\(epoch [0-9]*: .*\|valid on .*\|done training.*\)' || true; }

step "5. A lexicon from the training text: $out/lexicon"
if [ ! -f "$out/lexicon" ]; then
  $tied lv-lexicon build --source "$out/text/train.src" --target "$out/text/train.tgt" --out "$out/lexicon" \
    --source-dict "$out/data/dict.src.txt" --target-dict "$out/data/dict.tgt.txt" 2> "$out/lexicon.log"
fi
$tied lv-lexicon coverage "$out/lexicon" --source "$out/text/valid.src" --target "$out/text/valid.tgt" \
  --frequent 0,1000,4000 --per-word 0,5,10,20 2> /dev/null | tee "$out/coverage.txt"

step "6. Translating the test set over all words; over candidate lists (4,000 frequent words and 10 for each source word);
   and with rare names and unknown words replaced: $out/*.out"
translate() { # NAME, flags
  $tied fairseq-generate "$out/data" "${plugin[@]}" --path "$out/model/checkpoint_best.pt" --beam 5 --max-tokens 4000 \
    --max-len-a 2 --max-len-b 10 --source-text "$out/text/test.src" "${@:2}" > "$out/$1.out" 2> "$out/$1.log"
}
lists=(--candidate-frequent 4000 --candidate-per-word 10 --lexicon "$out/lexicon")
translate all-words --print-alignment soft
translate lists "${lists[@]}" --print-alignment soft
lists+=(--copy-rare-words 20) # names that were hidden as often as not
translate unreplaced "${lists[@]}" --print-alignment soft
translate test "${lists[@]}" --unk-replacement lexicon-lowercase
tail -n 2 "$out/test.log" | head -n 1

step "7. Three sentences with names that no dictionary has: source, reference, translation; replaced words stand in [ ],
   the model has written all others by itself"
$tied python scripts/show_names.py --dict "$out/data/dict.src.txt" --source "$out/text/test.src" \
  --reference "$out/text/test.tgt" --output "$out/test.out" --unreplaced "$out/unreplaced.out" --sentences 3

step "8. What lists and replacement bring"
$tied python scripts/demo_results.py "$out"

step "9. The same with coverage, learning curve, attention and translations side by side, on one page"
$tied lv-report "$out" 2> "$out/report.log"
echo "Open $out/report.html in a browser"
