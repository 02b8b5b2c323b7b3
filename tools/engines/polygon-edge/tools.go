//go:build tools

// Package polygonedge pins the validators of a chain for the tests of the ledger on an EVM chain. Its
// libp2p is a newer one than its own, which does not build with today's Go.
package polygonedge

import (
	_ "github.com/0xPolygon/polygon-edge"
)
