package manifest

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/sourcetest"
)

// node returns an object named name that starts at line.
func node(name string, line int) object {
	return object{id: objectID{kind: kindNode, name: name}, line: line}
}

// good is a reading of a file that holds the named objects, one per line.
func good(file string, names ...string) reading {
	result := reading{file: file}
	for i, name := range names {
		result.objects = append(result.objects, node(name, i+1))
	}
	return result
}

func bad(file string) reading {
	return reading{file: file, problems: []Problem{{File: file, Message: "bad"}, {File: file, Message: "worse"}}}
}

// told writes a difference as "+a +b -c".
func told(diff difference) string {
	var words []string
	for _, object := range diff.set {
		words = append(words, "+"+object.id.name)
	}
	for _, id := range diff.removed {
		words = append(words, "-"+id.name)
	}
	return strings.Join(words, " ")
}

func complaints(c *catalog) string {
	var lines []string
	for _, problem := range slices.Concat(c.perFile()...) {
		lines = append(lines, problem.String())
	}
	return strings.Join(lines, "\n")
}

func TestCatalog(t *testing.T) {
	type step struct {
		readings   []reading
		told       string
		complaints string
	}
	gone := func(file string) reading { return reading{file: file, gone: true} }
	tests := map[string][]step{
		"removing a file removes its objects only": {
			{[]reading{good("1", "a", "b"), good("2", "c")}, "+a +b +c", ""},
			{[]reading{gone("1")}, "-a -b", ""},
			{[]reading{gone("1")}, "", ""},
		},
		"an object that left its file is removed": {
			{[]reading{good("1", "a", "b")}, "+a +b", ""},
			{[]reading{good("1", "b", "c")}, "+b +c -a", ""},
		},
		"a bad file keeps its last good state": {
			{[]reading{good("1", "a")}, "+a", ""},
			{[]reading{bad("1")}, "", "1: bad\n1: worse"},
			{[]reading{good("1", "b")}, "+b -a", ""},
		},
		"a bad file that goes takes its last good state along": {
			{[]reading{good("1", "a")}, "+a", ""},
			{[]reading{bad("1")}, "", "1: bad\n1: worse"},
			{[]reading{gone("1")}, "-a", ""},
		},
		"a renamed file keeps its objects": {
			{[]reading{good("1", "a")}, "+a", ""},
			{[]reading{gone("1"), good("2", "a")}, "+a", ""},
		},
		"the first file by name wins, and the rest of the other is applied": {
			{[]reading{good("2", "b", "a"), good("1", "a")}, "+a +b", "2:2: Node a: metadata.name: is already defined in 1:1"},
			{nil, "", "2:2: Node a: metadata.name: is already defined in 1:1"},
			{[]reading{good("0", "a")}, "+a", "1:1: Node a: metadata.name: is already defined in 0:1\n2:2: Node a: metadata.name: is already defined in 0:1"},
			{[]reading{bad("0"), gone("2")}, "+a -b", "0: bad\n0: worse\n1:1: Node a: metadata.name: is already defined in 0:1"},
		},
		"the next file takes over without a gap": {
			{[]reading{good("1", "a"), good("2", "a", "b")}, "+a +b", "2:1: Node a: metadata.name: is already defined in 1:1"},
			{[]reading{gone("1")}, "+a", ""},
		},
		"an object moves between two files at once": {
			{[]reading{good("1", "a", "b"), good("2", "c")}, "+a +b +c", ""},
			{[]reading{good("1", "a"), good("2", "c", "b")}, "+a +b +c", ""},
		},
		"two files swap their objects": {
			{[]reading{good("1", "a"), good("2", "b")}, "+a +b", ""},
			{[]reading{good("1", "b"), good("2", "a")}, "+a +b", ""},
		},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCatalog()
			for i, step := range steps {
				if got := told(c.apply(step.readings)); got != step.told {
					t.Errorf("step %d told %q, want %q", i+1, got, step.told)
				}
				if got := complaints(c); got != step.complaints {
					t.Errorf("step %d complains\n%s\nwant\n%s", i+1, got, step.complaints)
				}
			}
		})
	}
}

// TestCatalogKeepsItsWord: after any readings, what was told adds up to the last good objects of all files, each from the
// first file that has it, and the other files complain.
func TestCatalogKeepsItsWord(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		c := newCatalog()
		known := make(map[objectID]int)
		for range 12 {
			diff := c.apply(randomReadings(random))
			for _, object := range diff.set {
				known[object.id] = object.line
			}
			for _, id := range diff.removed {
				if known[id] == 0 {
					t.Fatalf("seed %d: %s removed twice", seed, id)
				}
				delete(known, id)
			}
			checkCatalog(t, seed, c, known)
		}
	}
}

func randomReadings(random *rand.Rand) []reading {
	var readings []reading
	for _, file := range []string{"1", "2", "3", "4"} {
		switch random.IntN(6) {
		case 0:
			readings = append(readings, reading{file: file, gone: true})
		case 1:
			readings = append(readings, bad(file))
		case 2, 3:
			names := strings.Split("abcdef", "")
			random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			readings = append(readings, good(file, names[:random.IntN(4)]...))
		}
	}
	return readings
}

func checkCatalog(t *testing.T, seed uint64, c *catalog, known map[objectID]int) {
	t.Helper()
	applied := make(map[objectID]int)
	duplicates := 0
	for _, file := range slices.Sorted(maps.Keys(c.files)) {
		for id, object := range c.files[file].objects {
			if applied[id] == 0 {
				applied[id] = object.line
			} else if len(c.files[file].problems) == 0 {
				duplicates++
			}
		}
	}
	if !maps.Equal(applied, known) || len(c.holders) != len(known) {
		t.Fatalf("seed %d: applied %v, told %v", seed, applied, known)
	}
	if told := strings.Count(complaints(c), "already defined"); told != duplicates {
		t.Fatalf("seed %d: %d duplicates, told %d", seed, duplicates, told)
	}
}

// TestRemovedNodeIsDeleted: the Node that the cache has is marked as deleted when its manifest is removed,
// and not when another one is.
func TestRemovedNodeIsDeleted(t *testing.T) {
	cache := source.NewCache(sourcetest.NewRecorder(), source.Options{})
	cache.SetNode(&service.NodeObject{Name: "n"})
	for _, name := range []string{"other", "n"} {
		objectID{kind: kindNode, name: name}.remove(cache)
		if node := cache.Node(); node.Deleted != (name == "n") {
			t.Errorf("after the removal of %s: %+v", name, node)
		}
	}
}
