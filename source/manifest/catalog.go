package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/source"
)

// catalog knows which file holds which object, and decides which objects change when
// files change. It is pure; the follower's goroutine owns it.
//
// Invariants: an object in force belongs to exactly one file; a file's objects
// come into force together or not at all.
type catalog struct {
	files map[string]*fileState
	owner map[objectID]string
}

// fileState is what is known about one file.
type fileState struct {
	// current are the objects in force.
	current map[objectID]object
	// pending is a good reading that is not in force, because another file
	// holds one of its objects; nil when there is none.
	pending map[objectID]object
	// problems say why the newest reading is not in force.
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
	return &catalog{files: make(map[string]*fileState), owner: make(map[objectID]string)}
}

// apply records readings and returns the changes that follow. It also retries files that
// were rejected for an object of another file.
func (c *catalog) apply(readings []reading) difference {
	released := make(map[objectID]bool)
	for _, reading := range readings {
		state := c.files[reading.file]
		switch {
		case reading.gone:
			c.forget(reading.file, released)
			continue
		case state == nil:
			state = &fileState{}
			c.files[reading.file] = state
		}
		state.problems = reading.problems
		state.pending = nil
		if len(reading.problems) == 0 {
			state.pending = byID(reading.objects)
		}
	}
	return c.settle(released)
}

// forget drops a file and releases its objects.
func (c *catalog) forget(file string, released map[objectID]bool) {
	state := c.files[file]
	if state == nil {
		return
	}
	for id := range state.current {
		delete(c.owner, id)
		released[id] = true
	}
	delete(c.files, file)
}

// settle puts pending readings into force unless they conflict with another file. A
// rejected reading keeps the old objects of its file in force, which can conflict with
// yet another file; each round rejects at least one, so it ends.
func (c *catalog) settle(released map[objectID]bool) difference {
	waiting := make(map[string]bool)
	for file, state := range c.files {
		if state.pending != nil {
			waiting[file] = true
		}
	}
	for {
		refused := c.conflicts(waiting)
		if len(refused) == 0 {
			break
		}
		for file, problems := range refused {
			c.files[file].problems = problems
			delete(waiting, file)
		}
	}
	return c.takeOver(slices.Sorted(maps.Keys(waiting)), released)
}

// conflicts lists the files among waiting whose reading claims an object of
// another file. A file keeps the objects that it already has; new ones go to the
// first file by name.
func (c *catalog) conflicts(waiting map[string]bool) map[string][]Problem {
	claimed := make(map[objectID]string)
	for file := range waiting {
		state := c.files[file]
		for id := range state.current {
			if _, kept := state.pending[id]; kept {
				claimed[id] = file
			}
		}
	}
	refused := make(map[string][]Problem)
	for _, file := range slices.Sorted(maps.Keys(waiting)) {
		var problems []Problem
		for _, object := range inFileOrder(c.files[file].pending) {
			if holder := c.holder(object.id, claimed, waiting); holder != "" && holder != file {
				problems = append(problems, c.duplicate(file, holder, object))
			}
		}
		if len(problems) > 0 {
			refused[file] = problems
			continue
		}
		for id := range c.files[file].pending {
			claimed[id] = file
		}
	}
	return refused
}

// holder returns the file that has an object, empty when it is free. The objects in force
// of a waiting file count only if its reading claims them again.
func (c *catalog) holder(id objectID, claimed map[objectID]string, waiting map[string]bool) string {
	if file := claimed[id]; file != "" {
		return file
	}
	if file := c.owner[id]; !waiting[file] {
		return file
	}
	return ""
}

func (c *catalog) duplicate(file, holder string, object object) Problem {
	first := c.files[holder].current[object.id]
	if pending, ok := c.files[holder].pending[object.id]; ok {
		first = pending
	}
	return Problem{
		File: file, Line: object.line, Object: object.id.String(), Field: "metadata.name",
		Message: fmt.Sprintf("is already defined in %s:%d", holder, first.line),
	}
}

// takeOver puts the readings of files into force.
func (c *catalog) takeOver(files []string, released map[objectID]bool) difference {
	var diff difference
	for _, file := range files {
		for id := range c.files[file].current {
			delete(c.owner, id)
			released[id] = true
		}
	}
	for _, file := range files {
		state := c.files[file]
		for _, object := range inFileOrder(state.pending) {
			c.owner[object.id] = file
			diff.set = append(diff.set, object)
		}
		state.current, state.pending, state.problems = state.pending, nil, nil
	}
	for id := range released {
		if _, taken := c.owner[id]; !taken {
			diff.removed = append(diff.removed, id)
		}
	}
	slices.SortFunc(diff.removed, func(a, b objectID) int { return strings.Compare(a.String(), b.String()) })
	return diff
}

// perFile returns all problems of each bad file, sorted by file.
func (c *catalog) perFile() [][]Problem {
	var all [][]Problem
	for _, file := range slices.Sorted(maps.Keys(c.files)) {
		if found := c.files[file].problems; len(found) > 0 {
			all = append(all, found)
		}
	}
	return all
}

func byID(objects []object) map[objectID]object {
	all := make(map[objectID]object, len(objects))
	for _, object := range objects {
		all[object.id] = object
	}
	return all
}

func inFileOrder(objects map[objectID]object) []object {
	return slices.SortedFunc(maps.Values(objects), func(a, b object) int {
		if a.line != b.line {
			return a.line - b.line
		}
		return strings.Compare(a.id.String(), b.id.String())
	})
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
