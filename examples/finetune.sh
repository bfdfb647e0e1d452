# Sourced by finetune_nllb and finetune_mbart50, which say what their models differ in: from the released files to a
# fine-tuned model and its scores. What is done already is not done again; training goes on from its last checkpoint, which
# has no moments, since these would take five times the space.
source "$(dirname "${BASH_SOURCE[0]}")/start.sh"
if [ $# -lt 2 ]; then
  echo "usage: $0 RELEASED RAW [OUT]" >&2
  exit 2
fi
released=$(realpath -m "$1")
raw=$(realpath -m "$2")
out=$(realpath -m "${3:-$root/runs/$recipe}")
checkpoint=$(realpath -m "${CHECKPOINT:-$released/$checkpoint}")
dictionary=$(realpath -m "${DICTIONARY:-$released/$dictionary}")
spm=$(realpath -m "${SPM:-$released/$spm}")
languages=$(realpath -m "${LANGUAGES:-$released/$languages}")
for file in "$checkpoint" "$dictionary" "$spm" "$languages" "$raw"/{train,valid,test}.{$source,$target}; do
  if [ ! -f "$file" ]; then
    echo "there is no file $file" >&2
    exit 1
  fi
done
# Sizes for a GPU of 8 GB; others by variables
tau=${TAU:-15000}
updates=${UPDATES:-5000}
warmup=${WARMUP:-200}
lr=${LR:-5e-5}
max_tokens=${MAX_TOKENS:-1024}
update_freq=${UPDATE_FREQ:-4}
frequent=${FREQUENT:-5000}
per_word=${PER_WORD:-20}
device=(${DEVICE:---memory-efficient-fp16})
decoding=(${DECODING:---fp16})
cd "$root"
mkdir -p "$out/pieces"
trap 'echo "That did not work: the reason is at the end of the newest .log file in $out" >&2' ERR
step() { printf '\n== %s\n' "$*"; }
task=(--user-dir lv_fairseq --task lv_translation_multi_simple_epoch "${own[@]}"
  --langs "$(tr -s '\n ' ',' < "$languages" | sed 's/,$//')" --lang-pairs "$source-$target")

step "1. Text in pieces: $out/pieces"
for name in {train,valid,test}.{$source,$target}; do
  if [ ! -f "$out/pieces/$name" ]; then
    $tied python scripts/pieces.py "$spm" < "$raw/$name" > "$out/pieces/$name.part" 2> "$out/pieces.log"
    mv "$out/pieces/$name.part" "$out/pieces/$name"
  fi
done
wc -l "$out"/pieces/*.{$source,$target} | sed '$d'

step "2. Binarised, with the dictionary of the release: $out/data"
if [ ! -d "$out/data" ]; then
  rm -rf "$out/data.part"
  $tied fairseq-preprocess --source-lang $source --target-lang $target --destdir "$out/data.part" \
    --trainpref "$out/pieces/train" --validpref "$out/pieces/valid" --testpref "$out/pieces/test" \
    --srcdict "$dictionary" --tgtdict "$dictionary" > "$out/preprocess.log" 2>&1
  mv "$out/data.part" "$out/data"
fi
grep -oE '\[.*\] .*/(train|test)\..*: .*' "$out/preprocess.log"

step "3. Partitions of at most $tau words of both languages"
$tied lv-partition "$out/data" --tau $tau --share-all-embeddings --source-lang $source --target-lang $target \
  --max-tokens $max_tokens --update-freq $update_freq

step "4. For the lists, translations of pieces by the training text: $out/lexicon"
if [ ! -f "$out/lexicon" ]; then
  $tied lv-lexicon build --source "$out/pieces/train.$source" --target "$out/pieces/train.$target" --skip-bad-lines \
    --source-dict "$out/data/dict.$source.txt" --target-dict "$out/data/dict.$target.txt" --out "$out/lexicon" \
    2> "$out/lexicon.log"
fi

step "5. Fine-tuning, $updates updates: $out/model (all of the log is in $out/train.log)"
$tied fairseq-train "$out/data" "${task[@]}" "${arch[@]}" "${device[@]}" --finetune-from-model "$checkpoint" \
  --tau $tau --criterion partition_cross_entropy --label-smoothing 0.1 --dropout 0.1 --attention-dropout 0.1 \
  --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --clip-norm 1.0 \
  --lr $lr --lr-scheduler inverse_sqrt --warmup-updates $warmup --max-update $updates \
  --max-tokens $max_tokens --update-freq $update_freq --skip-invalid-size-inputs-valid-test \
  --save-dir "$out/model" --no-epoch-checkpoints --no-save-optimizer-state --log-format simple --log-interval 100 \
  2>&1 | tee -a "$out/train.log" | { grep --line-buffered -o '\(valid on .*\|done training.*\)' || true; }

translate() { # NAME, checkpoint, flags
  $tied fairseq-generate "$out/data" "${task[@]}" --path "$2" --source-lang $source --target-lang $target \
    --beam 4 --max-len-a 1.5 --max-len-b 10 --max-tokens 4000 --remove-bpe sentencepiece \
    "${decoding[@]}" "${@:3}" > "$out/$1.out" 2> "$out/$1.log"
  grep '^D-' "$out/$1.out" | sed 's/^D-//' | sort -n | cut -f3 > "$out/$1.hyp"
}
score() { # NAME
  sacrebleu "$raw/test.$target" --input "$out/$1.hyp" --metrics bleu chrf --format text 2> /dev/null
}
lists=(--candidate-frequent $frequent --candidate-per-word $per_word --frequent-words "$out/pieces/train.$target"
  --lexicon "$out/lexicon")

step "6. The test set before and after, over lists of $frequent frequent pieces and $per_word for each source piece"
translate before "$checkpoint" "${lists[@]}"
translate after "$out/model/checkpoint_best.pt" "${lists[@]}"
tail -n 2 "$out/after.log" | head -n 1
for name in before after; do
  echo "-- $name"
  score $name
done

step "7. The same after, over all words"
translate all "$out/model/checkpoint_best.pt"
score all
