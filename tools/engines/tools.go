//go:build tools

// Package engines pins what the ledgers on engines run beside: go.sum has the hash of all of it.
package engines

import (
	_ "github.com/cometbft/cometbft/cmd/cometbft"
)
