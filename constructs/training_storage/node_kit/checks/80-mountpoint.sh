#!/usr/bin/env bash
# The lake is mounted read-only and can be listed.
# Needs: contract nvme
set -euo pipefail
# shellcheck source=../lib/common.sh
source "${BASH_SOURCE[0]%/*}/../lib/common.sh"
load_settings
load_contract
[[ -n "$LAKE_PATH" ]] || exit 3
if ! options=",$(mounted "$LAKE_PATH" OPTIONS),"; then
  printf '%s is not mounted (training-storage-mountpoint.service)\n' "$LAKE_PATH"
  exit 1
fi
if [[ "$options" != *,ro,* ]]; then
  printf '%s is not read-only\n' "$LAKE_PATH"
  exit 1
fi
# The folders at the top, not what they hold.
if ! timeout --kill-after=5 60 ls "${KIT_ROOT}${LAKE_PATH}" >/dev/null; then
  printf '%s cannot be listed\n' "$LAKE_PATH"
  exit 1
fi
printf 's3://%s on %s\n' "$TRAINING_STORAGE_MOUNTPOINT_BUCKET" "$LAKE_PATH"
