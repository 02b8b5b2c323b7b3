//go:build tools

// Package geth pins a second kind of node for the tests of the ledger on an EVM chain.
package geth

import (
	_ "github.com/ethereum/go-ethereum/cmd/geth"
)
