# Sourced by the recipes: finds what `make install` installed, unless lv_fairseq is on the PATH already.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." > /dev/null && pwd)
command -v lv-report > /dev/null || PATH="$root/.venv/bin:$PATH"
if ! command -v lv-report > /dev/null; then
  echo "lv_fairseq is not installed: run \`make install\` in $root first" >&2
  exit 1
fi
# `$tied COMMAND` is told to end if this script is killed, where the system can do that
tied=
! setpriv --pdeathsig TERM true 2> /dev/null || tied="setpriv --pdeathsig TERM"
