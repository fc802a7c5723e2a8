#!/usr/bin/env bash
# The contract was read at this boot.
set -euo pipefail
# shellcheck source=../lib/common.sh
source "${BASH_SOURCE[0]%/*}/../lib/common.sh"
load_settings
if [[ -e "${KIT_RUN}/contract-error" ]]; then
  printf '%s\n' "$(<"${KIT_RUN}/contract-error")"
  exit 1
fi
if [[ ! -e "${KIT_RUN}/contract-read" || ! -r "${KIT_ETC}/storage.env" || ! -r "${KIT_ETC}/storage.json" ]]; then
  printf 'the contract was not read at this boot (training-storage-contract.service)\n'
  exit 1
fi
printf 'read from %s\n' "$KIT_PARAMETER"
