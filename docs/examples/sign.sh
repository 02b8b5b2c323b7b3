#!/bin/sh
# sign.sh CHAIN KEY-FILE TOPIC CONTENT-FILE [IDEMPOTENCY-KEY]
# Signs an event as its author, without a network: writes the parameters of its publish.
set -eu
hex() { od -An -v -tx1 | tr -d ' \n'; }

author=$(openssl pkey -in "$2" -pubout -outform DER | tail -c 32 | hex)
content=$(openssl dgst -sha256 -binary "$4" | hex)
time=$(date +%s)000

statement=$(mktemp)
trap 'rm -f "$statement"' EXIT
printf 'svcbroker/statement/1\nchain=%s\ntopic=%s\ncontent=%s\ntime=%s\nkey=%s\n' \
    "$1" "$3" "$content" "$time" "${5-}" > "$statement"

signature=$(openssl pkeyutl -sign -rawin -inkey "$2" -in "$statement" | hex)
echo "author=$author&signature=$signature&signedAt=$time"
