package manifest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
)

// folder writes files, given as name and text in turn.
func folder(t *testing.T, namesAndTexts ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(namesAndTexts); i += 2 {
		if err := os.WriteFile(filepath.Join(dir, namesAndTexts[i]), []byte(namesAndTexts[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLoadGivesEverything(t *testing.T) {
	dir := folder(t,
		"slices.yaml", sliceManifest("a", "a-1", "10.0.0.1")+"---\n"+sliceManifest("a", "a-2", "10.0.0.2"),
		"a.yaml", manifest("a", 80),
		"node.yml", "apiVersion: v1\nkind: Node\nmetadata: {name: n}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: other}\n",
		"ranges.json", `{"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "k"}, "spec": {"cidrs": ["10.96.0.0/16"]}}`,
		"README.md", "not a manifest")
	var warned []service.Warning
	cache, err := Load(dir, "n", source.Options{Warn: func(w service.Warning) { warned = append(warned, w) }})
	if err != nil {
		t.Fatal(err)
	}
	a := cache.Snapshot(service.Key{Namespace: "default", Name: "a"})
	if len(cache.Keys()) != 1 || a.Spec == nil || len(a.Slices) != 2 {
		t.Errorf("Services %v, a is %+v", cache.Keys(), a)
	}
	if cache.Node() == nil || cache.Node().Name != "n" || len(cache.ServiceCIDRs()) != 1 || !cache.Stats().Primed || warned != nil {
		t.Errorf("node %+v, ranges %v, %+v, warnings %v", cache.Node(), cache.ServiceCIDRs(), cache.Stats(), warned)
	}
}

func TestLoadNamesEveryMistake(t *testing.T) {
	dir := folder(t,
		"a.yaml", manifest("a", 80),
		"b.yaml", manifest("b", 0)+"---\n"+manifest("c", 70000)+"---\n"+manifest("a", 80),
		"c.yaml", manifest("a", 80),
		"d.yaml", "kind: [")
	cache, err := Load(dir, "n", source.Options{})
	refused, ok := errors.AsType[*RefusedError](err)
	if !ok || cache != nil || len(refused.Problems) != 4 {
		t.Fatalf("%v, %v", cache, err)
	}
	want := "manifests refused:\n" +
		dir + "/b.yaml:6: Service default/b: spec.ports[0].port: must be between 1 and 65535, is 0\n" +
		dir + "/b.yaml:13: Service default/c: spec.ports[0].port: must be between 1 and 65535, is 70000\n" +
		dir + "/c.yaml:1: Service default/a: metadata.name: is already defined in " + dir + "/a.yaml:1\n" +
		dir + "/d.yaml:2: not valid YAML: did not find expected node content"
	if err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestLoadNeedsTheDirectory(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "nowhere"), "n", source.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
