#!/usr/bin/env bash
# The local NVMe devices are there and carry scratch.
# Needs: contract
set -euo pipefail
# shellcheck source=../lib/common.sh
source "${BASH_SOURCE[0]%/*}/../lib/common.sh"
load_settings
load_contract
devices=()
read_lines devices instance_store_devices
# What the plan counts on (the contract may say it), and what this node had when it started.
planned_gb="${TRAINING_STORAGE_SCRATCH_LOCAL_NVME_GB:-0}"
had=0
if [[ -e "${KIT_STATE}/nvme-devices" ]]; then had="$(<"${KIT_STATE}/nvme-devices")"; fi
if [[ "$KIT_ROLE" == compute ]] && ((planned_gb > 0)); then
  bytes=0
  for device in "${devices[@]}"; do
    bytes=$((bytes + $(lsblk --nodeps --noheadings --bytes --output SIZE "$device")))
  done
  # One device of eight is 12 %; sizes are rounded by less than 5 %.
  if ((bytes / 1000000000 < planned_gb * 95 / 100)); then
    printf '%s GB of local NVMe in %s devices, the instance type has %s GB\n' \
      $((bytes / 1000000000)) "${#devices[@]}" "$planned_gb"
    exit 1
  fi
fi
if ((${#devices[@]} < had)); then
  printf '%s instance-store devices, this node started with %s\n' "${#devices[@]}" "$had"
  exit 1
fi
if ((${#devices[@]} == 0)); then
  if [[ ! -d "${KIT_ROOT}${SCRATCH_PATH}" ]]; then
    printf '%s is missing (training-storage-scratch.service)\n' "$SCRATCH_PATH"
    exit 1
  fi
  printf 'no local NVMe: %s is on the root volume\n' "$SCRATCH_PATH"
  exit 0
fi
if ! source="$(mounted "$SCRATCH_PATH" SOURCE)"; then
  printf '%s is not mounted (training-storage-scratch.service)\n' "$SCRATCH_PATH"
  exit 1
fi
printf '%s on %s, of %s devices\n' "$source" "$SCRATCH_PATH" "${#devices[@]}"
