#!/usr/bin/env bash
# Train on this machine: run.sh PROCESSES [arguments of train.py]. Nothing listens on a port beyond the loopback.
set -euo pipefail

processes="${1:?usage: run.sh PROCESSES [arguments of train.py]}"
shift
# The processes meet in a file, so that no store listens on all interfaces; a run's id names its checkpoints.
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 GLOO_SOCKET_IFNAME="${GLOO_SOCKET_IFNAME:-lo}" OMP_NUM_THREADS=1
meeting="$(mktemp)"
trap 'rm --force "$meeting"' EXIT
torchrun --nnodes=1 --nproc-per-node="$processes" --local-addr=127.0.0.1 --rdzv-backend=c10d \
  --rdzv-endpoint="$meeting" --rdzv-conf=store_type=file --rdzv-id="$(date +%s)-$$" \
  "$(dirname "${BASH_SOURCE[0]}")/train.py" "$@"
