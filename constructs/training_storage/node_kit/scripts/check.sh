#!/usr/bin/env bash
# Concern: is this node's storage what the contract says? check.sh [--quick]
# Runs every check, says each result, sends it to CloudWatch, and drains or undrains the node. --quick leaves out the
# check that moves data.
set -euo pipefail
# shellcheck source=../lib/common.sh
source "${BASH_SOURCE[0]%/*}/../lib/common.sh"
load_settings
mkdir --parents "$KIT_RUN" "$KIT_STATE"
# One run at a time: the timer's may meet the boot's.
exec 9>"${KIT_RUN}/check.lock"
flock 9
unset KIT_QUICK
if [[ "${1:-}" == --quick ]]; then export KIT_QUICK=1; fi

# A check is a program of its own: 0 passed, 1 failed with the reason on its last line of output, 3 does not apply.
# Anything else is a check that broke, and counts as failed. Each names the checks without which it means nothing, so
# that one fault is one failure.
reasons=() failed=" " metrics=""
for file in "${KIT_HOME}"/checks/*.sh; do
  name="${file##*/[0-9][0-9]-}"
  name="${name%.sh}"
  blocked=""
  all_needed=()
  while read -r line; do
    if [[ "$line" == "# Needs: "* ]]; then read -r -a all_needed <<<"${line#"# Needs: "}"; fi
    [[ "$line" == "#"* ]] || break
  done <"$file"
  for needed in "${all_needed[@]}"; do
    if [[ "$failed" == *" ${needed} "* ]]; then blocked="$needed"; fi
  done
  if [[ -n "$blocked" ]]; then
    # Blocked and failed are alike for those that need it, and only the first is reported.
    failed+="${name} "
    log "${name}: not checked, because ${blocked} failed"
    continue
  fi
  status=0
  text="$("$BASH" "$file")" || status=$?
  text="${text##*$'\n'}"
  value=0
  case "$status" in
    0) log "${name}: ${text}" ;;
    3) continue ;;
    *)
      value=1
      if ((status != 1)) || [[ -z "$text" ]]; then text="the check itself broke (exit ${status}): see the journal"; fi
      failed+="${name} "
      reasons+=("${name}: ${text}")
      log "${name}: FAILED: ${text}"
      ;;
  esac
  metrics+=",{\"MetricName\":\"NodeCheckFailed\",\"Value\":${value},\"Dimensions\":[{\"Name\":\"Job\",\"Value\":\"${KIT_JOB}\"},{\"Name\":\"Check\",\"Value\":\"${name}\"}]}"
done

value=$((${#reasons[@]} > 0 ? 1 : 0))
metrics="[{\"MetricName\":\"NodeCheckFailed\",\"Value\":${value},\"Dimensions\":[{\"Name\":\"Job\",\"Value\":\"${KIT_JOB}\"}]}${metrics}]"
# The drain comes before the metric: it must not wait for an endpoint that does not answer.
drain_status=0
if ((value)); then
  printf '%s\n' "${reasons[@]}" >"${KIT_RUN}/unhealthy.new"
  mv "${KIT_RUN}/unhealthy.new" "${KIT_RUN}/unhealthy"
  rm --force "${KIT_RUN}/ready"
else
  rm --force "${KIT_RUN}/unhealthy"
fi
if ! "$BASH" "${KIT_HOME}/scripts/drain.sh"; then
  drain_status=1
  # At boot the node may join its engine after this. The unit tries again every few seconds.
  systemctl restart --no-block training-storage-drain.service
fi
if ((!value)); then touch "${KIT_RUN}/ready"; fi
retry 3 2 10 timeout --kill-after=5 60 aws cloudwatch put-metric-data --region "$KIT_REGION" \
  --namespace TrainingStorage --metric-data "$metrics" || fail "the results did not reach CloudWatch"
if ((drain_status != 0)); then fail "the node could not be drained or undrained: see above"; fi
if ((value)); then fail "not ready: ${reasons[*]}"; fi
log "ready"
