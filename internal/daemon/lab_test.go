// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestNodeAddresses_RejectedFile: the sandbox takes the addresses of the Node from its file, even if another file is
// rejected.
func TestNodeAddresses_RejectedFile(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"node.yaml": `{apiVersion: v1, kind: Node, metadata: {name: demo}, status: {addresses: [{type: InternalIP, address: 192.168.0.2}]}}`,
		"bad.yaml":  `{apiVersion: v1, kind: Service, metadata: {namespace: a, name: b}, spec: {ports: [{port: "x"}]}}`,
	} {
		check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	if got, want := nodeAddresses(dir, "demo"), []netip.Addr{netip.MustParseAddr("192.168.0.2")}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := nodeAddresses(filepath.Join(dir, "none"), "demo"); got != nil {
		t.Errorf("got %v without a directory", got)
	}
}
