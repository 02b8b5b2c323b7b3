//go:build tools

// Package nats pins the NATS server that svcbroker is compared with: go.sum has the hash of all of
// it.
package nats

import (
	_ "github.com/nats-io/nats-server/v2"
)
