// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/sourcetest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

const examples = "../../examples"

// TestExamples follows every directory of examples: each has the expected Services, and none has a problem or a
// warning.
func TestExamples(t *testing.T) {
	folders, err := os.ReadDir(examples)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string][]string)
	for _, folder := range folders {
		if !folder.IsDir() {
			continue
		}
		cache := follow(t, filepath.Join(examples, folder.Name()))
		for _, key := range cache.Keys() {
			found[folder.Name()] = append(found[folder.Name()], key.String())
		}
	}
	want := map[string][]string{"demo": {"demo/dns", "demo/echo"}, "web": {"web/maintenance", "web/shop"}}
	if !maps.EqualFunc(found, want, slices.Equal) {
		t.Errorf("examples hold %v, want %v", found, want)
	}
}

// follow reads a folder the way the proxy does.
func follow(t *testing.T, dir string) *source.Cache {
	posts := sourcetest.NewRecorder()
	cache := source.NewCache(posts, source.Options{Warn: func(w service.Warning) { t.Errorf("%s: %s", dir, w) }})
	follower := New(dir, cache, "demo", zap.NewNop())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- follower.Run(ctx) }()
	testenv.Eventually(t, "the folder is read", func() bool { return cache.Stats().Primed })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, p := range follower.Problems() {
		t.Error(p)
	}
	for file, state := range follower.scanner.files {
		if len(state.objects) == 0 {
			t.Errorf("%s holds nothing", file)
		}
	}
	return cache
}

// TestExamples_DemoAsDocumented: the demo has the documented Node, ClusterIPs and endpoints.
func TestExamples_DemoAsDocumented(t *testing.T) {
	cache := follow(t, filepath.Join(examples, "demo"))
	node := cache.Node()
	if node == nil || node.Zone == "" || len(node.Addresses) != 2 || !node.PodCIDRs[service.IPv6].IsValid() {
		t.Fatalf("node is %+v, want two addresses, two pod ranges and a zone", node)
	}
	for name, want := range map[string]service.PerFamily[string]{
		"echo": {"172.30.0.41", "fd00:172:30::41"},
		"dns":  {"172.30.0.53", "fd00:172:30::53"},
	} {
		found := cache.Snapshot(service.Key{Namespace: "demo", Name: name})
		for _, family := range service.Families {
			if got := found.Spec.ClusterIPs[family].String(); got != want[family] {
				t.Errorf("%s: ClusterIP is %s, want %s", name, got, want[family])
			}
		}
		if len(found.Slices) != 2 {
			t.Fatalf("%s: %d slices, want one of each family", name, len(found.Slices))
		}
		for _, slice := range found.Slices {
			if len(slice.Endpoints) != 3 || !node.PodCIDRs[slice.Family].Contains(slice.Endpoints[0].Addr) {
				t.Errorf("%s: endpoints %v, want three within %s", slice.Name, slice.Endpoints, node.PodCIDRs[slice.Family])
			}
		}
	}
}
