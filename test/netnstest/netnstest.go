// SPDX-License-Identifier: Apache-2.0

// Package netnstest makes network namespaces and networks (package netns) that end with a test, and has what only
// tests do in them: servers ([Backend]) that tell each client ([Ask]) their name, connections ([Session]) and flows of
// datagrams ([Flow]) that clients hold, a [Load] that goes on, programs ([Run]), a [Queue] that holds packets, and the
// conntrack table ([Conntrack]).
package netnstest

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// New makes a namespace for a test.
func New(t testing.TB, name string) *netns.Namespace {
	t.Helper()
	testenv.NeedsRoot(t)
	n, err := netns.New(name)
	end(t, n, err)
	return n
}

// insideVariable is set in the process that Rerun starts.
const insideVariable = "SLUICE_TEST_INSIDE"

// Rerun runs a test again, in a separate process and namespace, and reports true. In that process
// it reports false.
func Rerun(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideVariable) != "" {
		return false
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	inside := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	inside.Env = append(os.Environ(), insideVariable+"=1", "XTABLES_LOCKFILE="+filepath.Join(t.TempDir(), "lock"))
	output, err := Output(New(t, "test"), inside)
	t.Logf("%s", output)
	if err != nil {
		t.Fatal(err)
	}
	return true
}

// Build makes a network for a test.
func Build(t testing.TB, plan Plan) *Network {
	t.Helper()
	testenv.NeedsRoot(t)
	n, err := NewNetwork(plan)
	end(t, n, err)
	return n
}

// Serve starts a server in a namespace for a test.
func Serve(t testing.TB, n *netns.Namespace, name string, at netip.AddrPort) *Backend {
	t.Helper()
	b, err := StartBackend(n, name, at)
	end(t, b, err)
	return b
}

// end closes what was made at the end of the test.
func end(t testing.TB, made interface{ Close() error }, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := made.Close(); err != nil {
			t.Error(err)
		}
	})
}
