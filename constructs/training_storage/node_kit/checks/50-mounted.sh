#!/usr/bin/env bash
# The file system of the contract is mounted, with the options that training needs.
# Needs: contract kernel lustre-client efa-interfaces
set -euo pipefail
# shellcheck source=../lib/common.sh
source "${BASH_SOURCE[0]%/*}/../lib/common.sh"
load_settings
load_contract
[[ -n "$LUSTRE_PATH" ]] || exit 3
if ! source="$(mounted "$LUSTRE_PATH" SOURCE)"; then
  printf '%s is not mounted (training-storage-lustre-mount.service)\n' "$LUSTRE_PATH"
  exit 1
fi
kind="$(mounted "$LUSTRE_PATH" FSTYPE)"
if [[ "$kind" != lustre || "$source" != *":/${TRAINING_STORAGE_LUSTRE_MOUNT_NAME}" ]]; then
  printf '%s is %s (%s), not the file system %s\n' "$LUSTRE_PATH" "$source" "$kind" "$TRAINING_STORAGE_LUSTRE_FILE_SYSTEM_ID"
  exit 1
fi
options=",$(mounted "$LUSTRE_PATH" OPTIONS),"
for option in flock relatime; do
  if [[ "$options" != *",${option},"* ]]; then
    printf '%s is mounted without %s\n' "$LUSTRE_PATH" "$option"
    exit 1
  fi
done
printf '%s on %s\n' "$source" "$LUSTRE_PATH"
