#!/usr/bin/env bash
# The paper's English to German experiment, with 500,000 words on both sides.
#   examples/wmt14_en_de/run.sh RAW [OUT]
# RAW holds train.en, train.de (WMT'14: Europarl v7, Common Crawl, News Commentary),
# dev.en, dev.de (news-test 2012 and 2013 together) and test.en, test.de (news-test 2014), untokenised.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ -n "${VIRTUAL_ENV:-}" ] || PATH="$PWD/.venv/bin:$PATH"
raw=${1:?"usage: $0 RAW [OUT]"}
out=${2:-runs/wmt14_en_de}
scripts/prepare --source-lang en --target-lang de --trainpref "$raw/train" --validpref "$raw/dev" --testpref "$raw/test" \
  --out "$out" --words 500000 --max-length 50
python scripts/run_experiment.py examples/wmt14_en_de/config.yaml --prepared "$out" --out "$out/experiment"
lv-report "$out/experiment"
