//go:build tools

// Package tpc names the program that scripts/apps.sh builds, so that go.sum pins all it needs.
package tpc

import _ "github.com/pingcap/go-tpc/cmd/go-tpc"
