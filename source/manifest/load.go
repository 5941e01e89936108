package manifest

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
)

// Load reads the manifests in dir once, for a program that follows nothing, and
// gives a cache that holds what they say. Of the Nodes in it, the one named
// nodeName counts. Unless all files are good the error is a *RefusedError, or one
// of another type when the directory cannot be read.
func Load(dir, nodeName string, options source.Options) (*source.Cache, error) {
	dir = filepath.Clean(dir)
	readings, err := newScanner(dir).scan(nil)
	if err != nil {
		return nil, fmt.Errorf("manifests: %w", err)
	}
	catalog := newCatalog()
	diff := catalog.apply(readings)
	if problems := slices.Concat(catalog.perFile()...); len(problems) > 0 {
		return nil, &RefusedError{Problems: problems}
	}
	cache := source.NewCache(nobody{}, options)
	diff.feed(cache, nodeName)
	cache.Prime()
	return cache, nil
}

// RefusedError says what is wrong with the manifests of a directory.
type RefusedError struct {
	// Problems are all of them, sorted by file; never empty.
	Problems []Problem
}

// Error gives the problems, each on a line of its own.
func (e *RefusedError) Error() string {
	lines := []string{"manifests refused:"}
	for _, problem := range e.Problems {
		lines = append(lines, problem.String())
	}
	return strings.Join(lines, "\n")
}

// nobody is the sink of a cache that is only read.
type nobody struct{}

func (nobody) PostSpec(service.Key, *service.Spec)           {}
func (nobody) PostSlice(service.Key, string, *service.Slice) {}
func (nobody) PostNode(*service.NodeObject)                  {}
func (nobody) PostServiceCIDRs([]netip.Prefix)               {}
func (nobody) Primed()                                       {}
