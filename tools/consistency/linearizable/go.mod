module svcbroker/tools/consistency/linearizable

go 1.22.11

require github.com/anishathalye/porcupine v1.3.1
