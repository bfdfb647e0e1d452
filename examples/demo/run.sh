#!/usr/bin/env bash
# The main job from nothing: make a corpus, binarise it with all its words, train RNNsearch over partitions of the
# vocabulary, make a lexicon, translate the test set over candidate lists, score it, and see which names arrived.
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
  --frequent 0,1000,4000 --per-word 0,5,10,20 2> /dev/null

step "6. Translating the test set over candidate lists of 4,000 frequent words and 10 for each source word: $out/test.out"
translate() { # LOG, flags
  $tied fairseq-generate "$out/data" "${plugin[@]}" --path "$out/model/checkpoint_best.pt" --beam 5 --max-tokens 4000 \
    --candidate-frequent 4000 --candidate-per-word 10 --lexicon "$out/lexicon" \
    --source-text "$out/text/test.src" "${@:2}" 2> "$out/$1"
}
translate generate.log --unk-replacement lexicon-lowercase > "$out/test.out"
tail -n 2 "$out/generate.log" | head -n 1
grep '^D-' "$out/test.out" | sed 's/^D-//' | sort -n | cut -f3 > "$out/test.hyp"

step "7. Three sentences: source, reference, translation"
paste -d '\n' "$out/text/test.src" "$out/text/test.tgt" "$out/test.hyp" /dev/null | sed -n 1,11p

step "8. Scores (words as they are: punctuation is split off already)"
sacrebleu "$out/text/test.tgt" --input "$out/test.hyp" --metrics bleu chrf --tokenize none --force --format text 2>&1 |
  grep -v '^sacreBLEU'

step "9. Names: source words outside the dictionary. What was replaced, and is unknown without replacement, is in [ ]"
translate unreplaced.log > "$out/unreplaced.out"
$tied python scripts/show_names.py --dict "$out/data/dict.src.txt" --source "$out/text/test.src" \
  --reference "$out/text/test.tgt" --output "$out/test.out" --unreplaced "$out/unreplaced.out" --sentences 3
