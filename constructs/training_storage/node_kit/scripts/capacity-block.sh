#!/usr/bin/env bash
# Concern: tell whoever is on the node that its Capacity Block ends. EC2 terminates the instances of a block some minutes
# before its end (EC2 User Guide, "Capacity Blocks for ML"; KIT_BLOCK_END_MINUTES, from the catalog); jobs find that in
# run/notice from the start on, and everybody hears it once, 30 minutes before that.
set -euo pipefail
# shellcheck source=../lib/common.sh
source "${BASH_SOURCE[0]%/*}/../lib/common.sh"
load_settings
[[ "$KIT_PURCHASE" == capacity-block ]] || exit 0
told_before_that=$((30 * 60))
mkdir --parents "$KIT_RUN"

# A compute node has its own block, the login node those of all nodes.
read -r -a ids <<<"$KIT_RESERVATIONS"
blocks=()
read_lines blocks aws ec2 describe-capacity-reservations --region "$KIT_REGION" --capacity-reservation-ids "${ids[@]}" \
  --query "CapacityReservations[?State=='active' && EndDate].[CapacityReservationId,EndDate]" --output text
notices=""
for block in "${blocks[@]}"; do
  read -r id end <<<"$block"
  if [[ -z "$end" || "$end" == None ]]; then continue; fi
  terminated=$(($(date --date "$end" +%s) - KIT_BLOCK_END_MINUTES * 60))
  message="The Capacity Block ${id} ends at $(date --utc --date "$end" '+%Y-%m-%d %H:%M UTC'). EC2 terminates its instances from $(
    date --utc --date "@${terminated}" '+%H:%M UTC'
  ) on: write the last checkpoint before that."
  notices+="${message}"$'\n'
  told="${KIT_RUN}/told-${id}-${terminated}"
  if (($(date +%s) < terminated - told_before_that)) || [[ -e "$told" ]]; then continue; fi
  wall "$message"
  log "$message"
  touch "$told"
  if [[ "$KIT_ROLE" == compute ]]; then
    # shellcheck source=../engines/pcs.sh
    source "${KIT_HOME}/engines/${KIT_ENGINE}.sh"
    if declare -F engine_note >/dev/null && ! (engine_note "$message"); then
      log "the engine could not be told; the message stands in ${KIT_RUN}/notice"
    fi
  fi
done
if [[ -n "$notices" ]]; then
  printf '%s' "$notices" | put_file "${KIT_RUN}/notice" 0644 >/dev/null
else
  log "no active Capacity Block with an end among: ${ids[*]}"
  rm --force "${KIT_RUN}/notice"
fi
