#!/usr/bin/env bash
# Concern: the mount of the file system. Idempotent, and retried for minutes: hundreds of nodes mount at once.
set -euo pipefail
# shellcheck source=../lib/common.sh
source "${BASH_SOURCE[0]%/*}/../lib/common.sh"
load_settings
load_contract
if [[ -z "$LUSTRE_PATH" ]]; then
  log "the contract has no file system"
  exit 0
fi
device="${TRAINING_STORAGE_LUSTRE_DNS_NAME}@tcp:/${TRAINING_STORAGE_LUSTRE_MOUNT_NAME}"

# Asked before every attempt: another service or a person may have mounted it in the meantime.
mount_once() {
  local source
  if source="$(mounted "$LUSTRE_PATH" SOURCE)"; then
    [[ "$source" == *":/${TRAINING_STORAGE_LUSTRE_MOUNT_NAME}" ]] ||
      fail "something else is mounted on ${LUSTRE_PATH}: ${source}; unmount it"
    return 0
  fi
  # User Guide, "Mounting from an Amazon EC2 instance"; the device says tcp also where the data goes over EFA.
  timeout --kill-after=5 120 \
    mount --types lustre --options relatime,flock,_netdev "$device" "${KIT_ROOT}${LUSTRE_PATH}"
}

mkdir --parents "${KIT_ROOT}${LUSTRE_PATH}"
retry 8 2 60 mount_once || fail "${device} cannot be mounted on ${LUSTRE_PATH}"
log "${device} is mounted on ${LUSTRE_PATH}"
