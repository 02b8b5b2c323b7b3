module scitt

go 1.24.0

require (
	github.com/fxamacker/cbor/v2 v2.5.0
	github.com/transparency-dev/merkle v0.0.2
	github.com/veraison/go-cose v1.3.0
)

require github.com/x448/float16 v0.8.4 // indirect
