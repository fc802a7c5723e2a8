#!/usr/bin/env bash
# Concern: tell whoever is on the node that its Capacity Block ends. EC2 terminates the instances of a block from 30
# minutes before its end (EC2 User Guide, "Capacity Blocks for ML"); this speaks 30 minutes before that, once.
set -euo pipefail
# shellcheck source=../lib/common.sh
source "${BASH_SOURCE[0]%/*}/../lib/common.sh"
load_settings
[[ "$KIT_PURCHASE" == capacity-block ]] || exit 0
terminated_before_end=$((30 * 60))
told_before_that=$((30 * 60))

filters=()
if [[ -n "$KIT_RESERVATIONS" ]]; then
  read -r -a ids <<<"$KIT_RESERVATIONS"
  filters=(--capacity-reservation-ids "${ids[@]}")
else
  filters=(--filters "Name=instance-type,Values=$(instance_metadata instance-type)")
fi
# With several blocks the first that ends is told: better early than not at all.
end="$(aws ec2 describe-capacity-reservations --region "$KIT_REGION" "${filters[@]}" \
  --query "CapacityReservations[?State=='active' && EndDate].EndDate" --output text | tr '\t' '\n' | sort | head --lines=1)"
if [[ -z "$end" || "$end" == None ]]; then
  log "no active Capacity Block with an end"
  exit 0
fi
terminated=$(($(date --date "$end" +%s) - terminated_before_end))
if (($(date +%s) < terminated - told_before_that)) || [[ -e "${KIT_RUN}/told-${terminated}" ]]; then exit 0; fi
message="The Capacity Block of this node ends at ${end}. EC2 terminates its instances from $(
  date --utc --date "@${terminated}" '+%H:%M UTC'
) on: write the last checkpoint before that."
wall "$message"
log "$message"
mkdir --parents "$KIT_RUN"
touch "${KIT_RUN}/told-${terminated}"
