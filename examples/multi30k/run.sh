#!/usr/bin/env bash
# The paper's table on image captions, trained until it converges, with three seeds, sized for two CPU cores.
#   examples/multi30k/run.sh RAW [LANGUAGE] [OUT] [CONFIG]
# RAW is a folder with train.en, dev.en, test.en and train.de, dev.de, test.de (or .fr: LANGUAGE is de by default),
# untokenised, one caption a line. Words seen once are left out; THRESHOLD=0 keeps all.
set -euo pipefail
source "$(dirname "$0")/../start.sh"
if [ $# -lt 1 ]; then
  echo "usage: $0 RAW [LANGUAGE] [OUT] [CONFIG]" >&2
  exit 2
fi
raw=$(realpath -m "$1")
language=${2:-de}
out=$(realpath -m "${3:-$root/runs/multi30k_en_$language}")
config=$(realpath -m "${4:-$root/examples/multi30k/config.yaml}")
cd "$root"
$tied scripts/prepare --source-lang en --target-lang "$language" --trainpref "$raw/train" --validpref "$raw/dev" \
  --testpref "$raw/test" --out "$out" --threshold "${THRESHOLD:-2}"
$tied python scripts/run_experiment.py "$config" --prepared "$out" --out "$out/experiment"
$tied lv-report "$out/experiment" --markdown "$out/experiment/tables.md"
