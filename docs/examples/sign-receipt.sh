#!/bin/sh
# Sign a receipt with openssl, as the receiver of a webhook: all events of a topic up to one were received.
#   BASE=http://127.0.0.1:8080/svcbroker sh sign-receipt.sh KEY.pem receipts/NAME TOPIC EVENT-ID [PREVIOUS-RECEIPT]
set -eu
checkpoint=$(curl -sf "$BASE/rest/checkpoint")
chain=$(expr "$checkpoint" : '.*"chain":"\([0-9a-f]*\)"')
block=$(expr "$checkpoint" : '.*"checkpoint":"\([0-9]*:[0-9a-f]*\)"')
number=${4#*-} && number=${number%-*}
previous=${5:+,\"previous\":\"$5\"}
content=$(printf '{"format":"svcbroker/receipt/1","chain":"%s","topic":"%s","number":%s,"eventId":"%s","checkpoint":"%s","means":"processed"%s}' \
    "$chain" "$3" "$number" "$4" "$block" "$previous")
signed=$(printf %s "$content" | sh "$(dirname "$0")/sign-event.sh" "$1" "$chain" "$2")
field() { expr "$signed" : ".*\"$1\": *\"*\([0-9a-f]*\)"; }
curl -sf "$BASE/rest/publish" --data-urlencode "topic=$2" --data-urlencode "content=$content" \
    -d "author=$(field author)" -d "signature=$(field signature)" -d "signedAt=$(field signedAt)"
