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
// returns a cache with their objects. Of the Nodes in it, the one named nodeName counts.
// If a file is bad, the error is a *RejectedError; if the directory cannot be read, it is
// one of another type.
func Load(dir, nodeName string, options source.Options) (*source.Cache, error) {
	dir = filepath.Clean(dir)
	readings, err := newScanner(dir).scan(nil)
	if err != nil {
		return nil, fmt.Errorf("manifests: %w", err)
	}
	catalog := newCatalog()
	diff := catalog.apply(readings)
	if problems := slices.Concat(catalog.perFile()...); len(problems) > 0 {
		return nil, &RejectedError{Problems: problems}
	}
	cache := source.NewCache(nobody{}, options)
	diff.feed(cache, nodeName)
	cache.Prime()
	return cache, nil
}

// RejectedError lists the problems of the manifests in a directory.
type RejectedError struct {
	// Problems are all of them, sorted by file; never empty.
	Problems []Problem
}

// Error returns the problems, each on a line of its own.
func (e *RejectedError) Error() string {
	lines := []string{"manifests rejected:"}
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
func (nobody) Primed([]service.Key)                          {}
