#!/usr/bin/env bash
# Concern: is this node's storage what the contract says? check.sh [--quick]
# Runs every check, says each result, sends it to CloudWatch, and drains or undrains the node. --quick does not repeat
# the checks that move data: their last result stands, until a full run gives another.
set -euo pipefail
# shellcheck source=../lib/common.sh
source "${BASH_SOURCE[0]%/*}/../lib/common.sh"
load_settings
results="${KIT_RUN}/results" # STATUS TEXT of the checks that a quick run does not repeat
mkdir --parents "$KIT_RUN" "$KIT_STATE" "$results"
# One run at a time: the timer's may meet the boot's.
exec 9>"${KIT_RUN}/check.lock"
flock 9
quick=""
if [[ "${1:-}" == --quick ]]; then quick=1; fi
# A run that never ends leaves this behind: ready.sh looks at its age, so a later run must not make it younger.
running="${KIT_RUN}/check-running"
if [[ ! -e "$running" ]]; then touch "$running"; fi

# A check is a program of its own: 0 passed, 1 failed with the reason on its last line of output, 3 does not apply.
# Anything else is a check that broke, and counts as failed. Its first comment says more, in lines of their own:
#   Needs: CHECK...  without these it means nothing, so that one fault is one failure
#   Moves data: ...  left out of quick runs once it has passed or failed
#   Reports only     its failure is said and sent, but does not make the node unfit
reasons=() warnings=() failed=" " metrics=""
for file in "${KIT_HOME}"/checks/*.sh; do
  name="${file##*/[0-9][0-9]-}"
  name="${name%.sh}"
  blocked="" moves_data="" reports_only=""
  all_needed=()
  while read -r line; do
    case "$line" in
      "# Needs: "*) read -r -a all_needed <<<"${line#"# Needs: "}" ;;
      "# Moves data"*) moves_data=1 ;;
      "# Reports only"*) reports_only=1 ;;
      "#"*) ;;
      *) break ;;
    esac
  done <"$file"
  for needed in "${all_needed[@]}"; do
    if [[ "$failed" == *" ${needed} "* ]]; then blocked="$needed"; fi
  done
  status=0 text=""
  if [[ -n "$moves_data" && -e "${results}/${name}" ]]; then read -r status text <"${results}/${name}"; fi
  if [[ -n "$blocked" ]]; then
    # Blocked and failed are alike for those that need it, and only the first is reported.
    failed+="${name} "
    log "${name}: not checked, because ${blocked} failed"
    # A pass says nothing about what is repaired now: the next run that can checks anew. A failure stays one.
    if ((status == 0)); then rm --force "${results}/${name}"; fi
    continue
  fi
  if [[ -n "$quick" && -n "$text" ]]; then
    log "${name}: as in the last full run"
  else
    status=0
    printf '%s\n' "$name" >"${KIT_RUN}/check-now"
    text="$("$BASH" "$file")" || status=$?
    text="${text##*$'\n'}"
    if ((status != 0 && status != 3)) && { ((status != 1)) || [[ -z "$text" ]]; }; then
      text="the check itself broke (exit ${status}): see the journal"
    fi
    if [[ -n "$moves_data" ]]; then
      printf '%s %s\n' "$status" "${text:--}" >"${results}/.new"
      mv "${results}/.new" "${results}/${name}"
    fi
  fi
  value=0
  case "$status" in
    0) log "${name}: ${text}" ;;
    3) continue ;;
    *)
      value=1
      failed+="${name} "
      if [[ -n "$reports_only" ]]; then
        warnings+=("${name}: ${text}")
        log "${name}: FAILED, which drains no node: ${text}"
      else
        reasons+=("${name}: ${text}")
        log "${name}: FAILED: ${text}"
      fi
      ;;
  esac
  metrics+=",$(check_metric "$value" "$name")"
done

value=$((${#reasons[@]} > 0 ? 1 : 0))
# Before anything that may wait: what ready.sh and the drain look at.
if ((${#warnings[@]})); then
  printf '%s\n' "${warnings[@]}" | put_file "${KIT_RUN}/warnings" 0644 >/dev/null
else
  rm --force "${KIT_RUN}/warnings"
fi
if ((value)); then
  printf '%s\n' "${reasons[@]}" | put_file "${KIT_RUN}/unhealthy" 0644 >/dev/null
  rm --force "${KIT_RUN}/ready"
else
  rm --force "${KIT_RUN}/unhealthy"
  touch "${KIT_RUN}/ready"
fi
rm --force "$running"
# The drain comes before the metric: it must not wait for an endpoint that does not answer.
drain_status=0
"$BASH" "${KIT_HOME}/scripts/drain.sh" || drain_status=$?
if ((drain_status)); then
  # At boot the node may join its engine after this. The unit tries again every few seconds.
  systemctl restart --no-block training-storage-drain.service
fi
send_metrics "[$(check_metric "$value")${metrics}]" || fail "the results did not reach CloudWatch"
# A node that is well and has not joined its engine yet has nothing to be told that could not wait.
if ((drain_status && (drain_status != LATER || value))); then
  fail "the node could not be drained or undrained: see above"
fi
if ((value)); then fail "not ready: ${reasons[*]}"; fi
log "ready"
