package manifest

import (
	"fmt"
	"os"

	"github.com/fsnotify/fsnotify"
)

// watch is a watch on a directory that can be lost and taken up again. The
// directory is watched, not its files: an editor that renames a new file over
// the old one would take a file's watch away with the old file. The follower's
// goroutine owns it.
type watch struct {
	dir     string
	watcher *fsnotify.Watcher
	// on is the directory that is watched, nil when none is.
	on os.FileInfo
}

// ensure watches the directory that is at the path now, which may be another one
// than before.
func (w *watch) ensure() error {
	now, err := os.Stat(w.dir)
	if err != nil {
		w.lose()
		return err
	}
	if !now.IsDir() {
		w.lose()
		return fmt.Errorf("%s is not a directory", w.dir)
	}
	if w.on != nil && os.SameFile(w.on, now) {
		return nil
	}
	w.lose()
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", w.dir, err)
	}
	if err := watcher.Add(w.dir); err != nil {
		watcher.Close()
		return fmt.Errorf("watch %s: %w", w.dir, err)
	}
	w.watcher, w.on = watcher, now
	return nil
}

// lose closes the watch; the next ensure opens it again.
func (w *watch) lose() {
	if w.watcher != nil {
		w.watcher.Close()
	}
	w.watcher, w.on = nil, nil
}

// events is nil, and blocks for ever, while nothing is watched.
func (w *watch) events() <-chan fsnotify.Event {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Events
}

// errors is nil, and blocks for ever, while nothing is watched.
func (w *watch) errors() <-chan error {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Errors
}
