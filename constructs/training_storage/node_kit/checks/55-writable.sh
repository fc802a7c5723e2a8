#!/usr/bin/env bash
# Training can write where the contract says that it writes.
# Needs: contract kernel lustre-client efa-interfaces mounted
set -euo pipefail
# shellcheck source=../lib/common.sh
source "${BASH_SOURCE[0]%/*}/../lib/common.sh"
load_settings
load_contract
[[ -n "$LUSTRE_PATH" ]] || exit 3
checked=""
while read -r folder; do
  [[ "$folder" == "$LUSTRE_PATH"/* ]] || continue
  # One is enough. Checkpoints come first: what is in the other folders is exported to the lake by itself.
  [[ -z "$checked" ]] || break
  if ! timeout --kill-after=5 60 python3 -I "${KIT_HOME}/lib/probe.py" \
    "${KIT_ROOT}${folder}" "${KIT_ROOT}${LUSTRE_PATH}" "${KIT_STATE}/probe-writable"; then
    printf '%s is not writable\n' "$folder"
    exit 1
  fi
  checked="$folder"
done < <(writable_folders)
[[ -n "$checked" ]] || exit 3
printf '%s\n' "$checked"
