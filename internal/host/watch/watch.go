// SPDX-License-Identifier: Apache-2.0

// Package watch follows files and directories: it calls a function when something in them may have changed, once the
// changes have paused. The followers of the configuration file, the certificates and the manifest directory use it;
// they compare content themselves, because an event is only a hint and may be missing.
package watch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Follower follows some paths. Its state belongs to the goroutine of Run.
type Follower struct {
	// Paths returns the directories and files to watch, as they are now. The watch of a directory covers its files. A
	// watch of a file would be lost when an editor renames a new file over it.
	Paths func() []string
	// Quiet is how long nothing must have happened before Look is called, because
	// editors write in several steps. Limit bounds that wait from the first event.
	Quiet, Limit time.Duration
	// Look looks at the paths. Run calls it at the start, after changes, and after the pause again if nothing happens.
	Look func(Seen) (again time.Duration)

	// notify is nil while nothing can be watched.
	notify *fsnotify.Watcher
	// first and last are the times of the events since the last look.
	first, last time.Time
	seen        Seen
	// fault is the fault of the last call of BeingWritten, and since is when a call first had it.
	fault string
	since time.Time
}

// Files returns a follower of files that are written by people and tools, one at a time.
func Files(names func() []string, look func(now time.Time) (again time.Duration)) *Follower {
	return &Follower{
		Paths: func() (all []string) {
			for _, name := range names() {
				all = append(all, WayTo(name)...)
			}
			return all
		},
		Quiet: 100 * time.Millisecond, Limit: time.Second,
		Look: func(Seen) time.Duration { return look(time.Now()) },
	}
}

// BeingWritten reports whether a fault of the files is younger than Limit, because a program may still be writing them.
// Look calls it each time, with an empty text if there is no fault.
func (f *Follower) BeingWritten(fault string, now time.Time) bool {
	if fault != f.fault {
		f.fault, f.since = fault, now
	}
	return fault != "" && now.Sub(f.since) < f.Limit
}

// Seen is what happened since the last look.
type Seen struct {
	// Touched are the paths that events have named.
	Touched map[string]bool
	// Lost says why events may be missing; nil if none are.
	Lost error
	// Unwatched says why a path cannot be watched now; nil if all are.
	Unwatched error
}

// Run calls Look until the context ends.
func (f *Follower) Run(ctx context.Context) {
	defer f.unwatch()
	next := time.NewTimer(0)
	defer next.Stop()
	var again time.Duration
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-f.events():
			if f.seen.Touched == nil {
				f.seen.Touched = map[string]bool{}
			}
			f.seen.Touched[event.Name] = true
			f.touch(time.Now())
		case f.seen.Lost = <-f.errors(): // usually an overflow
			f.unwatch()
			f.touch(time.Now())
		case <-next.C:
			// Watch before looking, so that later changes cause events.
			f.seen.Unwatched = f.watch()
			seen := f.seen
			f.first, f.last, f.seen = time.Time{}, time.Time{}, Seen{}
			again = f.Look(seen)
		}
		next.Reset(f.pause(time.Now(), again))
	}
}

// touch records an event.
func (f *Follower) touch(now time.Time) {
	if f.first.IsZero() {
		f.first = now
	}
	f.last = now
}

// pause returns the time until the next look unless there is another event.
func (f *Follower) pause(now time.Time, again time.Duration) time.Duration {
	if f.first.IsZero() {
		return again
	}
	at := f.last.Add(f.Quiet)
	if limit := f.first.Add(f.Limit); limit.Before(at) {
		at = limit
	}
	return max(at.Sub(now), 0)
}

// watch watches the paths. Adding one that is watched already follows what is at the path now. It returns the error of
// the first path that cannot be watched.
func (f *Follower) watch() (failed error) {
	if f.notify == nil {
		notify, err := fsnotify.NewWatcher()
		if err != nil {
			return err // no descriptors or watches left
		}
		f.notify = notify
	}
	wanted := map[string]bool{}
	for _, path := range f.Paths() {
		wanted[path] = true
	}
	for _, path := range f.notify.WatchList() {
		if !wanted[path] {
			_ = f.notify.Remove(path) // fails if what it watched is gone
		}
	}
	for path := range wanted {
		if err := f.notify.Add(path); err != nil && failed == nil {
			failed = fmt.Errorf("watch %s: %w", path, err)
		}
	}
	return failed
}

func (f *Follower) unwatch() {
	if f.notify != nil {
		f.notify.Close()
		f.notify = nil
	}
}

// events is nil, and blocks forever, while nothing is watched.
func (f *Follower) events() <-chan fsnotify.Event {
	if f.notify == nil {
		return nil
	}
	return f.notify.Events
}

// errors is nil, and blocks forever, while nothing is watched.
func (f *Follower) errors() <-chan error {
	if f.notify == nil {
		return nil
	}
	return f.notify.Errors
}

// linksMax bounds the symbolic links that are followed, as the kernel does.
const linksMax = 40

// WayTo returns the paths to watch for one file: the directory it is in, the directory of
// each symbolic link on the way, and the file itself, because nothing happens in the
// directory of a file that is mounted alone. A file in a ConfigMap, for example, is
// replaced by swapping a link in its directory (..data).
func WayTo(file string) (paths []string) {
	path := filepath.Clean(file)
	for range linksMax {
		paths = append(paths, filepath.Dir(path))
		link, rest := firstLink(path)
		if link == "" {
			break
		}
		target, err := os.Readlink(link)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(link), target)
		}
		paths = append(paths, filepath.Dir(link))
		path = filepath.Join(target, rest)
	}
	return append(paths, path)
}

// firstLink returns the first symbolic link in a path, and the rest of the path.
func firstLink(path string) (link, rest string) {
	names := strings.Split(path, string(filepath.Separator))
	for i := range names {
		prefix := strings.Join(names[:i+1], string(filepath.Separator))
		if prefix == "" {
			continue // the root
		}
		info, err := os.Lstat(prefix)
		if err != nil {
			return "", ""
		}
		if info.Mode()&os.ModeSymlink != 0 {
			return prefix, filepath.Join(names[i+1:]...)
		}
	}
	return "", ""
}
