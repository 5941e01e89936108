// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/sourcetest"
)

// good is a file that holds the named objects, one per line.
func good(names ...string) *fileState {
	f := &fileState{}
	for i, name := range names {
		f.objects = append(f.objects, object{id: objectID{kind: kindNode, name: name}, line: i + 1})
	}
	return f
}

// bad is a file whose newest content is bad, and which held the named objects before.
func bad(file string, names ...string) *fileState {
	f := good(names...)
	f.problems = []Problem{{File: file, Message: "bad"}, {File: file, Message: "worse"}}
	return f
}

// TestContents: an object belongs to the first file by name that contains it, and the other files report a problem. A
// bad file keeps its previous objects.
func TestContents(t *testing.T) {
	for name, c := range map[string]struct {
		files    map[string]*fileState
		objects  string
		problems string
	}{
		"all files":         {map[string]*fileState{"2": good("c"), "1": good("a", "b")}, "1:a 2:b 1:c", ""},
		"a bad file":        {map[string]*fileState{"1": bad("1", "a"), "2": good("b")}, "1:a 1:b", "1: bad\n1: worse"},
		"a file at first":   {map[string]*fileState{"1": bad("1")}, "", "1: bad\n1: worse"},
		"twice":             {map[string]*fileState{"2": good("b", "a"), "1": good("a")}, "1:a 1:b", "2:2: Node a: metadata.name: is already defined in 1:1"},
		"three times":       {map[string]*fileState{"2": good("b", "a"), "1": good("a"), "0": good("a")}, "1:a 1:b", "1:1: Node a: metadata.name: is already defined in 0:1\n2:2: Node a: metadata.name: is already defined in 0:1"},
		"bad and twice":     {map[string]*fileState{"1": good("a"), "2": bad("2", "x", "a")}, "1:a 1:x", "2: bad\n2: worse"},
		"bad, but first":    {map[string]*fileState{"1": bad("1", "a"), "2": good("a")}, "1:a", "1: bad\n1: worse\n2:1: Node a: metadata.name: is already defined in 1:1"},
		"an empty file":     {map[string]*fileState{"1": good()}, "", ""},
		"no file":           {nil, "", ""},
		"in order of lines": {map[string]*fileState{"1": good("a", "b"), "2": good("b", "c", "a")}, "1:a 2:b 2:c", "2:1: Node b: metadata.name: is already defined in 1:2\n2:3: Node a: metadata.name: is already defined in 1:1"},
	} {
		objects, problems := contents(c.files)
		var got []string
		for _, o := range objects {
			got = append(got, string(rune('0'+o.line))+":"+o.id.name)
		}
		if text := strings.Join(got, " "); text != c.objects {
			t.Errorf("%s: objects %q, want %q", name, text, c.objects)
		}
		if text := linesOf(slices.Concat(problems...)); text != c.problems {
			t.Errorf("%s: problems\n%s\nwant\n%s", name, text, c.problems)
		}
	}
}

// TestFeed_Replaces: the cache contains what was fed last. A deleted Node stays in use, and a Node that was never fed
// is not deleted.
func TestFeed_Replaces(t *testing.T) {
	cache := source.NewCache(sourcetest.NewRecorder(), source.Options{})
	has := feed(cache, "n", slices.Concat(parsed(t, goodService+"---\n"+goodSlice), parsed(t, manifest("b", 80)),
		parsed(t, "apiVersion: v1\nkind: Node\nmetadata: {name: n}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: other}\n")), false)
	if node := cache.Node(); len(cache.Keys()) != 2 || node == nil || node.Name != "n" || node.Deleted {
		t.Fatalf("Services %v, Node %+v", cache.Keys(), node)
	}
	feed(cache, "n", parsed(t, manifest("b", 81)), has)
	web := cache.Snapshot(service.Key{Namespace: "default", Name: "web"})
	if node := cache.Node(); len(cache.Keys()) != 1 || web.Spec != nil || len(web.Slices) > 0 || node == nil || !node.Deleted {
		t.Errorf("Services %v, %+v, Node %+v", cache.Keys(), web, node)
	}
	cache.SetNode(&service.NodeObject{Name: "n"})
	if feed(cache, "n", nil, false); cache.Node().Deleted {
		t.Error("the Node of a former process is deleted")
	}
}

// TestFeed_WarnsOnce: feeding unchanged objects again gives no further warning, as if only another file had changed.
func TestFeed_WarnsOnce(t *testing.T) {
	warned := map[string]int{}
	cache := source.NewCache(sourcetest.NewRecorder(), source.Options{Warn: func(w service.Warning) { warned[w.Field]++ }})
	ranges := "---\napiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: k}\nspec: {cidrs: [10.96.0.0/16]}\n"
	objects := parsed(t, strings.Replace(goodService, "  ports:", "  externalIPs: [10.96.0.9]\n  ports:", 1)+ranges)
	for range 3 {
		feed(cache, "n", objects, false)
	}
	if want := map[string]int{"spec.externalIPs": 1}; !maps.Equal(warned, want) {
		t.Errorf("warned %v, want %v", warned, want)
	}
}
