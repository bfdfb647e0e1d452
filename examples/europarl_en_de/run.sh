#!/usr/bin/env bash
# The paper's table on line-aligned text, sized for two CPU cores.
#   examples/europarl_en_de/run.sh RAW [OUT] [PAIRS]
# RAW is a folder with train.en, train.de, dev.en, dev.de, test.en and test.de, untokenised, one sentence a line.
set -euo pipefail
source "$(dirname "$0")/../start.sh"
if [ $# -lt 1 ]; then
  echo "usage: $0 RAW [OUT] [PAIRS]" >&2
  exit 2
fi
raw=$(realpath -m "$1")
out=$(realpath -m "${2:-$root/runs/europarl_en_de}")
pairs=${3:-230000}
cd "$root"
scripts/prepare --source-lang en --target-lang de --trainpref "$raw/train" --validpref "$raw/dev" --testpref "$raw/test" \
  --out "$out" --pairs "$pairs" --threshold 2
python scripts/run_experiment.py examples/europarl_en_de/config.yaml --prepared "$out" --out "$out/experiment"
lv-report "$out/experiment"
