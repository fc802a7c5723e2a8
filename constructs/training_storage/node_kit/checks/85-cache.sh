#!/usr/bin/env bash
# The disk under scratch and Mountpoint's cache has room: 2 %. Any user may fill it, so no node is drained for it.
# Needs: contract nvme
# Reports only
set -euo pipefail
# shellcheck source=../lib/common.sh
source "${BASH_SOURCE[0]%/*}/../lib/common.sh"
load_settings
load_contract
folder="${CACHE_PATH:-$SCRATCH_PATH}"
if [[ ! -d "${KIT_ROOT}${folder}" ]]; then folder="$SCRATCH_PATH"; fi
used="$(df --output=pcent "${KIT_ROOT}${folder}" | tail --lines=1 | tr --delete ' %')"
if ((used > 98)); then
  printf 'the disk under %s is full: %s %% are used\n' "$folder" "$used"
  exit 1
fi
printf '%s %% of the disk under %s are used\n' "$used" "$folder"
