#!/usr/bin/env bash
# Concern: a run of the checks that systemd had to end. A check that waits for storage which hangs cannot be ended, nor
# say anything itself. Called after each run (ExecStopPost), with its outcome in SERVICE_RESULT.
set -euo pipefail
# shellcheck source=../lib/common.sh
source "${BASH_SOURCE[0]%/*}/../lib/common.sh"
[[ "${SERVICE_RESULT:-}" == timeout ]] || exit 0
load_settings
name="checks"
if [[ -s "${KIT_RUN}/check-now" ]]; then name="$(<"${KIT_RUN}/check-now")"; fi
reason="${name}: the check did not end in time: what it looks at hangs"
put_file "${KIT_RUN}/unhealthy" 0644 <<<"$reason" >/dev/null
rm --force "${KIT_RUN}/ready"
systemctl restart --no-block training-storage-drain.service
send_metrics "[$(check_metric 1),$(check_metric 1 "$name")]" || fail "the results did not reach CloudWatch"
fail "not ready: ${reason}"
