// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/host/watch"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/reduce"
)

// Follower feeds a cache from a directory. Its state belongs to the goroutine of
// Run; Problems may be called from anywhere.
type Follower struct {
	dir      string
	cache    *source.Cache
	nodeName string
	log      *zap.Logger
	// rescan is how often the directory is scanned without an event, and retry how often a lost directory, or a file
	// that is being written, is tried again.
	rescan, retry time.Duration

	scanner *scanner
	// hasNode is set while the Node is in a file.
	hasNode bool
	// told are the logged problems by file.
	told     map[string][]Problem
	problems atomic.Pointer[[]Problem]
}

// New prepares to feed cache from the manifests in dir. Of the Nodes in it, the
// one named nodeName counts. The log gets one line when a file is rejected, and one when
// it is accepted again or removed.
func New(dir string, cache *source.Cache, nodeName string, log *zap.Logger) *Follower {
	dir = filepath.Clean(dir)
	return &Follower{
		dir: dir, cache: cache, nodeName: nodeName, log: log, rescan: 30 * time.Second, retry: 250 * time.Millisecond,
		scanner: newScanner(dir, cache.Policy()),
	}
}

// Problems returns the problems of each file that is rejected now, sorted by file, and one
// for the directory while it cannot be read. The caller must not change the result.
func (f *Follower) Problems() []Problem {
	if current := f.problems.Load(); current != nil {
		return *current
	}
	return nil
}

// Run reads the directory, primes the cache and follows changes until ctx ends;
// it returns nil then. While the directory cannot be read, nothing is removed and the
// cache is not primed: an empty cache would make the proxy remove everything that an earlier run left in the kernel.
func (f *Follower) Run(ctx context.Context) error {
	follower := watch.Follower{
		Paths: func() []string { return []string{f.dir} },
		Quiet: 20 * time.Millisecond, Limit: 200 * time.Millisecond, Look: f.look,
	}
	follower.Run(ctx)
	return nil
}

// look reads what has changed, updates the cache, and returns when to look again if
// there is no event.
func (f *Follower) look(seen watch.Seen) (again time.Duration) {
	if seen.Lost != nil {
		f.log.Warn("manifest watch lost events; rereading all files", zap.String("dir", f.dir), zap.Error(seen.Lost))
	}
	touched := make(map[string]bool)
	for path := range seen.Touched {
		touched[filepath.Base(path)] = true
	}
	err := f.scanner.scan(touched)
	objects, problems := contents(f.scanner.files)
	if err == nil {
		if f.scanner.changed {
			f.hasNode = feed(f.cache, f.nodeName, objects, f.hasNode)
			f.cache.Prime()
			f.scanner.changed = false
		}
		err = seen.Unwatched
	}
	if err != nil {
		problems = append(problems, []Problem{{File: f.dir, Message: err.Error()}})
	}
	f.report(problems)
	if err != nil || f.scanner.unsettled {
		return f.retry
	}
	return f.rescan
}

// report publishes the problems of each file, and logs those that are new or gone: one line
// per file, with all of its problems.
func (f *Follower) report(perFile [][]Problem) {
	all := slices.Concat(perFile...)
	f.problems.Store(&all)
	bad := make(map[string][]Problem)
	for _, problems := range perFile {
		file := problems[0].File
		bad[file] = problems
		if slices.Equal(f.told[file], problems) {
			continue
		}
		if state := f.scanner.files[file]; state != nil && len(state.problems) == 0 {
			f.log.Error("rejected duplicate object in manifest; another file defines it", zap.String("problem", linesOf(problems)))
		} else {
			f.log.Error("rejected invalid manifest; keeping its last valid content", zap.String("problem", linesOf(problems)))
		}
	}
	for _, file := range slices.Sorted(maps.Keys(f.told)) {
		switch {
		case bad[file] != nil:
		case f.scanner.files[file] == nil && file != f.dir:
			f.log.Info("rejected manifest removed", zap.String("file", file))
		default:
			f.log.Info("manifest valid again", zap.String("file", file))
		}
	}
	f.told = bad
}

// linesOf returns problems, each on a separate line.
func linesOf(problems []Problem) string {
	var lines []string
	for _, problem := range problems {
		lines = append(lines, problem.String())
	}
	return strings.Join(lines, "\n")
}

// Load reads the manifests in dir once, for a program that follows nothing, and
// returns a cache with their objects. Of the Nodes in it, the one named nodeName counts.
// If files are rejected, the error is a *RejectedError, and the cache contains the objects of the other files. If the
// directory cannot be read, the error has another type, and there is no cache.
func Load(dir, nodeName string, options source.Options) (*source.Cache, error) {
	dir = filepath.Clean(dir)
	files := newScanner(dir, options.Policy)
	if err := files.scan(nil); err != nil {
		return nil, fmt.Errorf("manifests: %w", err)
	}
	cache := source.NewCache(discard{}, options)
	objects, bad := contents(files.files)
	feed(cache, nodeName, objects, false)
	cache.Prime()
	if len(bad) > 0 {
		return cache, &RejectedError{Problems: slices.Concat(bad...)}
	}
	return cache, nil
}

// Unserved reads the manifests in dir and returns why no node serves an address that Services in them list.
func Unserved(dir string, at netip.Addr) (reasons []string) {
	files := newScanner(filepath.Clean(dir), reduce.Policy{})
	if err := files.scan(nil); err != nil {
		return nil // the follower of the directory reports it
	}
	for _, f := range files.files {
		for _, o := range f.objects {
			if why := o.unserved[at]; why != "" {
				reasons = append(reasons, why)
			}
		}
	}
	slices.Sort(reasons)
	return reasons
}

// RejectedError lists the problems of the manifests in a directory.
type RejectedError struct {
	// Problems are all of them, sorted by file; never empty.
	Problems []Problem
}

// Error returns the problems, each on a separate line.
func (e *RejectedError) Error() string {
	return "manifests rejected:\n" + linesOf(e.Problems)
}

// discard is the sink of a cache that is only read.
type discard struct{}

func (discard) PostSpec(service.Key, *service.Spec)           {}
func (discard) PostSlice(service.Key, string, *service.Slice) {}
func (discard) PostNode(*service.NodeObject)                  {}
func (discard) PostServiceCIDRs([]netip.Prefix)               {}
func (discard) Primed()                                       {}
