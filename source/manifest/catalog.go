package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/source"
)

// catalog knows which file holds which object, and decides which objects change when files change. If several files hold
// an object, that of the first file by name is applied. It is pure; the follower's goroutine owns it.
type catalog struct {
	files map[string]*fileState
	// holders are the files that hold an object, sorted. Contested are the objects with more than one.
	holders   map[objectID][]string
	contested map[objectID]bool
}

// fileState is what is known about one file.
type fileState struct {
	// objects are those of the last good reading.
	objects map[objectID]object
	// problems say why the newest reading is not applied.
	problems []Problem
}

// reading is the outcome of reading one file.
type reading struct {
	file string
	// gone means that the file does not exist any more.
	gone     bool
	objects  []object
	problems []Problem
}

func newCatalog() *catalog {
	return &catalog{files: make(map[string]*fileState), holders: make(map[objectID][]string), contested: make(map[objectID]bool)}
}

// apply records readings and returns the changes that follow.
func (c *catalog) apply(readings []reading) difference {
	touched := make(map[objectID]bool)
	for _, r := range readings {
		state := c.files[r.file]
		if state == nil {
			state = &fileState{}
			c.files[r.file] = state
		}
		state.problems = r.problems
		if len(r.problems) == 0 {
			c.hold(r.file, state, byID(r.objects), touched)
		}
		if r.gone {
			delete(c.files, r.file)
		}
	}
	return c.changes(touched)
}

// hold replaces the objects of a file, and adds both to touched.
func (c *catalog) hold(file string, state *fileState, objects map[objectID]object, touched map[objectID]bool) {
	for id := range state.objects {
		c.holders[id] = slices.DeleteFunc(c.holders[id], func(holder string) bool { return holder == file })
		touched[id] = true
	}
	for id := range objects {
		at, _ := slices.BinarySearch(c.holders[id], file)
		c.holders[id] = slices.Insert(c.holders[id], at, file)
		touched[id] = true
	}
	state.objects = objects
}

// changes returns what is applied now of the objects touched.
func (c *catalog) changes(touched map[objectID]bool) (diff difference) {
	for id := range touched {
		delete(c.contested, id)
		holders := c.holders[id]
		if len(holders) == 0 {
			delete(c.holders, id)
			diff.removed = append(diff.removed, id)
			continue
		}
		if len(holders) > 1 {
			c.contested[id] = true
		}
		diff.set = append(diff.set, c.files[holders[0]].objects[id])
	}
	slices.SortFunc(diff.set, func(a, b object) int { return strings.Compare(a.id.String(), b.id.String()) })
	slices.SortFunc(diff.removed, func(a, b objectID) int { return strings.Compare(a.String(), b.String()) })
	return diff
}

// perFile returns all problems of each bad file, sorted by file.
func (c *catalog) perFile() (all [][]Problem) {
	bad := make(map[string][]Problem)
	for file, state := range c.files {
		if len(state.problems) > 0 {
			bad[file] = state.problems
		}
	}
	for id := range c.contested {
		for _, file := range c.holders[id][1:] {
			if len(c.files[file].problems) == 0 {
				bad[file] = append(bad[file], c.duplicate(file, id))
			}
		}
	}
	for _, file := range slices.Sorted(maps.Keys(bad)) {
		slices.SortStableFunc(bad[file], func(a, b Problem) int { return a.Line - b.Line })
		all = append(all, bad[file])
	}
	return all
}

// duplicate is the problem of an object that is not applied because an earlier file holds it.
func (c *catalog) duplicate(file string, id objectID) Problem {
	first := c.holders[id][0]
	return Problem{
		File: file, Line: c.files[file].objects[id].line, Object: id.String(), Field: "metadata.name",
		Message: fmt.Sprintf("is already defined in %s:%d", first, c.files[first].objects[id].line),
	}
}

func byID(objects []object) map[objectID]object {
	all := make(map[objectID]object, len(objects))
	for _, object := range objects {
		all[object.id] = object
	}
	return all
}

// difference lists the changes for the cache.
type difference struct {
	set     []object
	removed []objectID
}

// feed applies the changes to the cache: slices before Services, so that a new Service
// starts with all of its endpoints, and additions before removals.
func (d difference) feed(cache *source.Cache, nodeName string) {
	slices.SortStableFunc(d.set, func(a, b object) int { return feedRank(a) - feedRank(b) })
	for _, object := range d.set {
		object.feed(cache, nodeName)
	}
	for _, id := range d.removed {
		cache.Warn(id.kind, id.path(), nil)
		id.remove(cache)
	}
}

func feedRank(o object) int {
	if o.id.kind == kindService {
		return 1
	}
	return 0
}
