#!/usr/bin/env bash
# The whole story on real text that every Debian user has: package descriptions in English and German (or another
# language), from apt to the report, in under 30 minutes on two cores.
#   examples/debian_descriptions/run.sh [LANGUAGE] [OUT]
set -euo pipefail
source "$(dirname "$0")/../start.sh"
language=${1:-de}
out=$(realpath -m "${2:-$root/runs/debian_en_$language}")
cd "$root"
[ -f "$out/raw/test.$language" ] || python examples/debian_descriptions/make_corpus.py --language "$language" --out "$out/raw"
scripts/prepare --source-lang en --target-lang "$language" --trainpref "$out/raw/train" --validpref "$out/raw/dev" \
  --testpref "$out/raw/test" --out "$out/prepared" --threshold 2
python scripts/run_experiment.py examples/debian_descriptions/config.yaml --prepared "$out/prepared" --out "$out/experiment"
lv-report "$out/experiment"
