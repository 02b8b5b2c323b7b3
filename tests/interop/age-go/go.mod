module reveal

go 1.24.0

require filippo.io/age v1.2.1

require (
	golang.org/x/crypto v0.24.0 // indirect
	golang.org/x/sys v0.21.0 // indirect
)
