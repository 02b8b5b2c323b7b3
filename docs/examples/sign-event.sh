#!/bin/sh
# Sign an event as its author, with nothing but openssl 3:
#
#     sh sign-event.sh KEY.pem CHAIN TOPIC [EXTENSION=VALUE...] <CONTENT
#
# It prints the parameters of the publish that say who has signed it. The key is one that
# "openssl genpkey -algorithm ed25519" made. The environment may have SIGNED_AT (milliseconds since
# 1970, by default now), IDEMPOTENCY_KEY, and EXPECTED_SEQUENCE, which makes a statement of version 2.
set -eu
export LC_ALL=C
key=$1 chain=$2 topic=$3
shift 3

hex() {
    od -An -v -tx1 | tr -d ' \n'
}

version=1
[ -z "${EXPECTED_SEQUENCE:-}" ] || version=2
time=${SIGNED_AT:-$(date +%s)000}
content=$(openssl dgst -sha256 -binary | hex)
statement=$(mktemp)
trap 'rm -f "$statement"' EXIT
{
    printf 'svcbroker/statement/%s\nchain=%s\ntopic=%s\n' "$version" "$chain" "$topic"
    printf 'content=%s\ntime=%s\nkey=%s\n' "$content" "$time" "${IDEMPOTENCY_KEY:-}"
    [ "$version" = 1 ] || printf 'expected=%s\n' "$EXPECTED_SEQUENCE"
    for each; do
        printf 'extension=%s:%s\n' "$(printf %s "${each%%=*}" | hex)" "$(printf %s "${each#*=}" | hex)"
    done | sort -t: -k1,1
} >"$statement"

author=$(openssl pkey -in "$key" -pubout -outform DER | tail -c 32 | hex)
signature=$(openssl pkeyutl -sign -rawin -inkey "$key" -in "$statement" | hex)
[ "${#author} ${#signature}" = "64 128" ]
printf '{"author": "%s", "signature": "%s", "signedAt": %s}\n' "$author" "$signature" "$time"
