#!/usr/bin/env bash
# Exit 0 if this node's storage is as the contract says; else 1, with the reasons. For prologs and batch scripts.
# It looks at the last run of the checks and at the mount table, so it is quick and cannot hang. Every user may call it.
set -euo pipefail
export PATH # Slurm gives its prolog none; this is then bash's own
root="${KIT_ROOT:-}"
run="${root}/run/training-storage"
state="${root}/var/lib/training-storage"
oldest_seconds=1200  # the timer runs the checks every 5 minutes: a run older than that was missed thrice
longest_seconds=600  # a run takes seconds, and minutes where all of its time limits are reached

age() {
  local now
  printf -v now '%(%s)T' -1
  printf '%s' $((now - $(stat --format %Y "$1")))
}

not_ready() {
  local reason
  for reason; do printf 'training-storage: not ready: %s\n' "$reason" >&2; done
  # In Slurm's prolog, which is root's, Slurm now drains the node and says "Prolog error". The kit gives the better reason
  # and looks after the node from now on; not from here, because a prolog must not wait for Slurm.
  if [[ "${SLURM_SCRIPT_CONTEXT:-}" == prolog_slurmd && -w "$state" ]]; then
    printf '%s\n' "$1" >"${state}/prolog-failed"
    systemctl restart --no-block training-storage-drain.service training-storage-recheck.service
  fi
  exit 1
}

if [[ -r "${run}/notice" ]]; then
  while read -r line; do printf 'training-storage: %s\n' "$line" >&2; done <"${run}/notice"
fi
if [[ -r "${run}/warnings" ]]; then
  while read -r line; do printf 'training-storage: ready all the same: %s\n' "$line" >&2; done <"${run}/warnings"
fi
if [[ -e "${run}/unhealthy" ]]; then
  mapfile -t reasons <"${run}/unhealthy"
  not_ready "${reasons[@]}"
fi
[[ -e "${run}/ready" ]] || not_ready "the checks have not passed since this node started (journalctl -u 'training-storage-*')"
if [[ -e "${run}/check-running" ]]; then
  seconds="$(age "${run}/check-running")"
  ((seconds <= longest_seconds)) ||
    not_ready "the checks have run for ${seconds} s and do not end: storage may hang (systemctl status training-storage-recheck)"
fi
seconds="$(age "${run}/ready")"
((seconds <= oldest_seconds)) ||
  not_ready "the checks last passed ${seconds} s ago (systemctl status training-storage-recheck.timer)"
# shellcheck source=/dev/null
source "${root}/etc/training-storage/storage.env"
for path in "${TRAINING_STORAGE_LUSTRE_MOUNT_PATH:-}" "${TRAINING_STORAGE_MOUNTPOINT_PATH:-}"; do
  path="${path%/}"
  if [[ -n "$path" ]]; then
    findmnt --noheadings --mountpoint "${root}${path}" >/dev/null || not_ready "${path} is not mounted"
  fi
done
