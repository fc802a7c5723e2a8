#!/usr/bin/env bash
# The file system has room: 2 % of its bytes and of its files. Its alarm speaks much earlier (85 %); this one says that
# writes are about to fail. Every node sees it at once.
# Needs: contract kernel lustre-client efa-interfaces mounted
set -euo pipefail
# shellcheck source=../lib/common.sh
source "${BASH_SOURCE[0]%/*}/../lib/common.sh"
load_settings
load_contract
[[ -n "$LUSTRE_PATH" ]] || exit 3
used="$(timeout --kill-after=5 60 df --output=pcent,ipcent "${KIT_ROOT}${LUSTRE_PATH}" | tail --lines=1)"
read -r bytes files <<<"$used"
bytes="${bytes%\%}"
files="${files%\%}"
if ((bytes > 98 || ${files/-/0} > 98)); then
  printf '%s is full: %s %% of its bytes and %s %% of its files are used\n' "$LUSTRE_PATH" "$bytes" "$files"
  exit 1
fi
printf '%s %% of the bytes and %s %% of the files are used\n' "$bytes" "$files"
