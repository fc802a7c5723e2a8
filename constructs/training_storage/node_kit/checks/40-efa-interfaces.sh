#!/usr/bin/env bash
# LNet has as many EFA interfaces as planned.
# Needs: contract kernel lustre-client
set -euo pipefail
# shellcheck source=../lib/common.sh
source "${BASH_SOURCE[0]%/*}/../lib/common.sh"
load_settings
load_contract
((EFA_INTERFACES > 0)) || exit 3
interfaces=()
read_lines interfaces lnet_interfaces efa
if ((${#interfaces[@]} != EFA_INTERFACES)); then
  printf 'LNet has %s EFA interfaces, the plan has %s (training-storage-lustre-efa.service)\n' \
    "${#interfaces[@]}" "$EFA_INTERFACES"
  exit 1
fi
printf '%s EFA interfaces\n' "${#interfaces[@]}"
