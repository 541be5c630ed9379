#!/bin/sh
# Runs longhand-cli and another program's llama-bench in turn on models of the same shape, and
# prints how many times as fast Longhand is: the median over rounds of each round's ratio, so that
# a machine whose speed drifts drifts for both. POSIX sh; needs jq (Debian's package `jq`).
#
#   compare.sh --peer LLAMA_BENCH --gguf FILE --shape NAME [options]
#
#   --cli PROGRAM       longhand-cli (default: the one in PATH)
#   --peer PROGRAM      llama-bench of llama.cpp or of a fork
#   --gguf FILE         the peer's model, of the same shape as --shape
#   --shape NAME        llama-2-7b, llama-2-13b or tinyllama-1.1b: random weights, NF4
#   --depths LIST       tokens in the cache before measuring (0,4096)
#   --caches LIST       ours, bits of keys / values (16/16,8/8,4/4)
#   --peer-caches LIST  the peer's (f16,q8_0,q4_0)
#   --rounds N          (3)
#   --threads N         of both (all cores)
#   --prefill-tokens N  0: no prefill (512)
#   --decode-tokens N   0: no decode (32)
#   --run COMMAND       put before each program, like "taskset -c 0,1"
#   --json              one line of JSON for each ratio instead of the table
#
# Every one of our caches is compared with the peer's best cache of that round. A llama-bench that
# knows no --n-depth (some forks) is measured by its -gp; its prefill behind other tokens is then
# left out. With OpenBLAS a peer can be slowed by OPENBLAS_CORETYPE, so that is unset.
set -eu
unset OPENBLAS_CORETYPE

fail() { printf 'compare.sh: %s\n' "$*" >&2; exit 2; }

cli=longhand-cli peer='' gguf='' shape='' depths=0,4096 caches=16/16,8/8,4/4
peer_caches=f16,q8_0,q4_0 rounds=3 threads='' prefill=512 decode=32 run='' json=0
while [ $# -gt 0 ]; do
  case "$1" in
    --json) json=1; shift; continue ;;
    -h | --help) sed -n '2,/^set -eu/{/^#/s/^# \{0,1\}//p;}' "$0"; exit 0 ;;
    --*) [ $# -ge 2 ] || fail "$1 needs a value" ;;
    *) fail "what is \"$1\"? See --help" ;;
  esac
  case "$1" in
    --cli) cli=$2 ;;
    --peer) peer=$2 ;;
    --gguf) gguf=$2 ;;
    --shape) shape=$2 ;;
    --depths) depths=$2 ;;
    --caches) caches=$2 ;;
    --peer-caches) peer_caches=$2 ;;
    --rounds) rounds=$2 ;;
    --threads) threads=$2 ;;
    --prefill-tokens) prefill=$2 ;;
    --decode-tokens) decode=$2 ;;
    --run) run=$2 ;;
    *) fail "there is no option $1. See --help" ;;
  esac
  shift 2
done
if [ -z "$peer" ] || [ -z "$gguf" ] || [ -z "$shape" ]; then
  fail "--peer, --gguf and --shape are needed"
fi
command -v jq >/dev/null 2>&1 || fail "jq is needed: apt-get install jq"
command -v "$cli" >/dev/null 2>&1 || fail "cannot run $cli"
command -v "$peer" >/dev/null 2>&1 || fail "cannot run $peer"
[ -r "$gguf" ] || fail "cannot read $gguf"
[ -n "$threads" ] || threads=$(nproc)
knows_depth=0
if "$peer" --help 2>&1 | grep -q -e --n-depth; then knows_depth=1; fi

results=$(mktemp)
trap 'rm -f "$results"' EXIT
trap 'exit 130' INT TERM

# Each result is a line {round, who, cache, depth, kind, rate}.
measure_ours() { # round depth
  # shellcheck disable=SC2086
  $run "$cli" bench --json --shape "$shape" --weights nf4 --threads "$threads" --rounds 1 \
    --depth "$2" --cache "$caches" --prefill-tokens "$prefill" --decode-tokens "$decode" |
    jq -c --argjson round "$1" '.rows[] |
      {round: $round, who: "ours", cache, depth} as $line |
      ($line + {kind: "prefill", rate: .prefill_tokens_per_second}),
      ($line + {kind: "decode", rate: .decode_tokens_per_second}) | select(.rate != null)' \
      >>"$results"
}

# The peer's own numbers: avg_ts is tokens a second.
run_peer() { # round depth cache kind arguments...
  round=$1 depth=$2 cache=$3 kind=$4
  shift 4
  # shellcheck disable=SC2086
  $run "$peer" -m "$gguf" -t "$threads" -fa 1 -ctk "$cache" -ctv "$cache" -r 1 -o json "$@" \
    2>/dev/null |
    jq -c --argjson round "$round" --argjson depth "$depth" --arg cache "$cache" \
      --arg kind "$kind" '.[] | {round: $round, who: "peer", cache: $cache, depth: $depth,
        kind: $kind, rate: .avg_ts}' >>"$results"
}

measure_peer() { # round depth cache
  if [ "$prefill" -gt 0 ]; then
    if [ "$knows_depth" = 1 ]; then
      run_peer "$@" prefill -p "$prefill" -n 0 -d "$2"
    elif [ "$2" = 0 ]; then
      run_peer "$@" prefill -p "$prefill" -n 0
    fi
  fi
  [ "$decode" -gt 0 ] || return 0
  if [ "$knows_depth" = 1 ]; then
    run_peer "$@" decode -p 0 -n "$decode" -d "$2"
  elif [ "$2" = 0 ]; then
    run_peer "$@" decode -p 0 -n "$decode"
  else
    run_peer "$@" decode -p 0 -n 0 -gp "$2,$decode"
  fi
}

split() { printf '%s\n' "$1" | tr ',' ' '; }

for depth in $(split "$depths"); do
  round=1
  while [ "$round" -le "$rounds" ]; do
    printf 'round %s of %s at depth %s\r' "$round" "$rounds" "$depth" >&2
    measure_ours "$round" "$depth"
    for cache in $(split "$peer_caches"); do measure_peer "$round" "$depth" "$cache"; done
    round=$((round + 1))
  done
done
printf '\n' >&2

# For each of our caches: its ratio to the peer's fastest cache, round by round.
ratios=$(jq -s -c '
  def median: sort | if length % 2 == 1 then .[(length - 1) / 2]
                     else (.[length / 2 - 1] + .[length / 2]) / 2 end;
  . as $all |
  [.[] | select(.who == "ours") | {depth, kind, cache}] | unique | sort_by(.depth, .kind) | .[] |
  . as $line |
  [$all[] | select(.who == "ours" and .depth == $line.depth and .kind == $line.kind
                   and .cache == $line.cache)] as $ours |
  [$all[] | select(.who == "peer" and .depth == $line.depth and .kind == $line.kind)] as $peers |
  select(($peers | length) > 0) |
  ([$ours[] | . as $one | $peers | map(select(.round == $one.round)) |
    select(length > 0) | $one.rate / (map(.rate) | max)]) as $ratios |
  $line + {ours: ([$ours[].rate] | median),
           peer: ([$peers | group_by(.round)[] | map(.rate) | max] | median),
           peer_cache: ($peers | group_by(.cache) |
                        max_by([.[].rate] | median) | .[0].cache),
           ratio: ($ratios | median), lowest: ($ratios | min), highest: ($ratios | max)}
' "$results")
[ -n "$ratios" ] || fail "the peer measured nothing: run it by hand to see why"
if [ "$json" = 1 ]; then
  printf '%s\n' "$ratios"
  exit 0
fi
printf '%s against %s, %s, %s threads, %s rounds; tokens/s\n' "$cli" "$peer" "$shape" "$threads" \
  "$rounds"
printf '%8s %-8s %-7s %10s %10s %-6s %7s  %s\n' depth kind cache ours peer of ratio 'lowest..highest'
printf '%s\n' "$ratios" |
  jq -r '[.depth, .kind, .cache, .ours, .peer, .peer_cache, .ratio, .lowest, .highest] | @tsv' |
  while IFS="$(printf '\t')" read -r depth kind cache ours theirs peer_cache ratio low high; do
    printf '%8d %-8s %-7s %10.2f %10.2f %-6s %7.2f  %.2f..%.2f\n' "$depth" "$kind" "$cache" \
      "$ours" "$theirs" "$peer_cache" "$ratio" "$low" "$high"
  done
