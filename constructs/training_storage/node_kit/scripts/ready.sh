#!/usr/bin/env bash
# Exit 0 if this node's storage is as the contract says; else 1, with the reasons. For prologs and batch scripts.
# It looks at the last run of the checks and at the mount table, so it is quick and cannot hang. Every user may call it.
set -euo pipefail
root="${KIT_ROOT:-}"
run="${root}/run/training-storage"
oldest_seconds=1200 # the timer runs the checks every 5 minutes: a run older than that was missed thrice

not_ready() {
  printf 'training-storage: not ready: %s\n' "$1" >&2
  exit 1
}

if [[ -e "${run}/unhealthy" ]]; then
  while read -r reason; do printf 'training-storage: not ready: %s\n' "$reason" >&2; done <"${run}/unhealthy"
  exit 1
fi
[[ -e "${run}/ready" ]] || not_ready "the checks have not passed since this node started (journalctl -u 'training-storage-*')"
age=$(($(date +%s) - $(stat --format %Y "${run}/ready")))
((age <= oldest_seconds)) || not_ready "the checks last passed ${age} s ago (systemctl status training-storage-recheck.timer)"
# shellcheck source=/dev/null
source "${root}/etc/training-storage/storage.env"
for path in "${TRAINING_STORAGE_LUSTRE_MOUNT_PATH:-}" "${TRAINING_STORAGE_MOUNTPOINT_PATH:-}"; do
  path="${path%/}"
  if [[ -n "$path" ]]; then
    findmnt --noheadings --mountpoint "${root}${path}" >/dev/null || not_ready "${path} is not mounted"
  fi
done
