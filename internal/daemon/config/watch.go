package config

import (
	"bytes"
	"context"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Update tells what has become of a configuration file.
type Update struct {
	// Config is what the file says; with Err, the configuration in force.
	Config *Config
	// Changes are the differences from the configuration in force. There may be
	// none, when only comments have changed, or a bad file is good again.
	Changes  []Change
	Warnings []Warning
	// Err says what is wrong with the file as it is now.
	Err error
}

// Watch follows the configuration file, and tells what each new content comes to.
// Tell gives whether that is in force now; what is not stays out of the comparison
// with the next content. Watch blocks until the context ends, and calls tell from
// the same goroutine. Without a file there is nothing to tell.
//
// A file in a ConfigMap is replaced by swapping a symbolic link in its directory
// (..data), which no watch on the file itself would notice; so all directories on
// the way to the file are watched, and the content decides whether anything has
// changed. Where watching fails, or tells nothing, the file is read every few
// seconds.
func (f *Flags) Watch(ctx context.Context, current *Config, tell func(Update) (inForce bool)) {
	if f.File == "" {
		<-ctx.Done()
		return
	}
	newWatcher(f, current, tell).run(ctx)
}

// watcher follows one file. The goroutine of run owns it.
type watcher struct {
	flags *Flags
	// force is the configuration in force.
	force *Config
	tell  func(Update) (inForce bool)
	// quiet is how long nothing must have happened before the file is read, limit
	// how long that can put it off, and poll how often it is read in any case.
	quiet, limit, poll time.Duration
	// seen is the content that was told about last, or the text of the error that
	// reading it gave.
	seen []byte
	// emptied is since when the file has been empty: it is between being cut off
	// and being written, unless that takes longer than limit.
	emptied time.Time
	// notify is nil while nothing can be watched.
	notify *fsnotify.Watcher
	// first and last are the times of the events that have not been looked into.
	first, last time.Time
}

func newWatcher(f *Flags, current *Config, tell func(Update) (inForce bool)) *watcher {
	return &watcher{flags: f, force: current, tell: tell, quiet: 100 * time.Millisecond, limit: time.Second, poll: 10 * time.Second}
}

func (w *watcher) run(ctx context.Context) {
	defer w.unwatch()
	w.watch()
	w.look(time.Now()) // it may have changed since it was loaded
	next := time.NewTimer(w.poll)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.events():
			w.touch(time.Now())
		case <-w.errors():
			w.unwatch() // events may have been lost
			w.touch(time.Now())
		case <-next.C:
			w.first, w.last = time.Time{}, time.Time{}
			w.watch() // before reading, so that what happens next is an event
			w.look(time.Now())
		}
		next.Reset(w.pause(time.Now()))
	}
}

// touch records an event.
func (w *watcher) touch(now time.Time) {
	if w.first.IsZero() {
		w.first = now
	}
	w.last = now
}

// pause says when to read the file unless there is an event.
func (w *watcher) pause(now time.Time) time.Duration {
	if w.first.IsZero() {
		return w.poll
	}
	at := w.last.Add(w.quiet)
	if limit := w.first.Add(w.limit); limit.Before(at) {
		at = limit
	}
	return max(at.Sub(now), 0)
}

// look reads the file, and tells when it is not as it was.
func (w *watcher) look(now time.Time) {
	content := w.read()
	if w.beingWritten(content, now) {
		return
	}
	if w.seen != nil && bytes.Equal(content, w.seen) {
		return
	}
	next, warnings, err := w.flags.Load()
	if !bytes.Equal(w.read(), content) {
		w.touch(now) // it has changed while it was read: look again
		return
	}
	first := w.seen == nil
	w.seen = content
	if err != nil {
		w.tell(Update{Config: w.force, Warnings: warnings, Err: err})
		return
	}
	changes := Compare(w.force, next)
	if first && len(changes) == 0 {
		return // still what was loaded
	}
	if w.tell(Update{Config: next, Changes: changes, Warnings: warnings}) {
		w.force = next
	}
}

// read returns what the file holds, or why it cannot be read.
func (w *watcher) read() []byte {
	content, err := os.ReadFile(w.flags.File)
	if err != nil {
		return []byte(err.Error())
	}
	return content
}

// beingWritten reports whether a file is empty, and was not for long.
func (w *watcher) beingWritten(content []byte, now time.Time) bool {
	switch {
	case len(content) > 0:
		w.emptied = time.Time{}
	case w.emptied.IsZero():
		w.emptied = now
	}
	return len(content) == 0 && now.Sub(w.emptied) < w.limit
}

// watch watches the file and every directory that the way to it leads through,
// as they are now.
func (w *watcher) watch() {
	if w.notify == nil {
		notify, err := fsnotify.NewWatcher()
		if err != nil {
			return // no descriptors or watches left: polling has to do
		}
		w.notify = notify
	}
	wanted := map[string]bool{}
	for _, path := range wayTo(w.flags.File) {
		wanted[path] = true
	}
	for _, path := range w.notify.WatchList() {
		if !wanted[path] {
			_ = w.notify.Remove(path) // gone with what it watched
		}
	}
	for path := range wanted {
		_ = w.notify.Add(path) // polling has to do for what cannot be watched
	}
}

func (w *watcher) unwatch() {
	if w.notify != nil {
		w.notify.Close()
		w.notify = nil
	}
}

// events is nil, and blocks for ever, while nothing is watched.
func (w *watcher) events() <-chan fsnotify.Event {
	if w.notify == nil {
		return nil
	}
	return w.notify.Events
}

// errors is nil, and blocks for ever, while nothing is watched.
func (w *watcher) errors() <-chan error {
	if w.notify == nil {
		return nil
	}
	return w.notify.Errors
}
