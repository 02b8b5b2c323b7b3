#!/bin/sh
# Check the signature v1a of a request to a webhook, with openssl 3:
#   sh verify-webhook.sh whpk_... WEBHOOK-ID WEBHOOK-TIMESTAMP WEBHOOK-SIGNATURE < BODY
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The public key in DER: a header of twelve bytes, and its 32 bytes.
{
    printf '\060\052\060\005\006\003\053\145\160\003\041\000'
    printf %s "${1#whpk_}" | openssl base64 -d -A
} > "$work/key"
{ printf '%s.%s.' "$2" "$3"; cat; } > "$work/signed"
for each in $4; do
    printf %s "${each#v1a,}" | openssl base64 -d -A > "$work/signature"
    if openssl pkeyutl -verify -pubin -keyform DER -inkey "$work/key" -rawin \
        -in "$work/signed" -sigfile "$work/signature" > "$work/told" 2>&1; then
        echo "signed by $1" && exit 0
    fi
done
echo "not signed by $1" >&2 && exit 1
