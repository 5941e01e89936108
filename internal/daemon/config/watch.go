// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"context"
	"os"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/watch"
)

// Update is the outcome of a changed configuration file.
type Update struct {
	// Config is the configuration in the file or, with Err, the current one.
	Config *Config
	// Changes are the differences from the current configuration. There may be none:
	// only comments changed, or an invalid file is valid again.
	Changes  []Change
	Warnings []Warning
	// Err is the error in the file now; nil if it is valid.
	Err error
}

// Watch follows the configuration files, and calls apply with the outcome of each new
// content, which it compares with the current configuration. It blocks until the context
// ends, and calls apply from the same goroutine. Without files it never calls apply.
//
// The content decides whether anything has changed. The file is also read every few
// seconds, in case watching fails or misses something.
func (f *Flags) Watch(ctx context.Context, current *Config, apply func(Update)) {
	if len(f.files()) == 0 {
		<-ctx.Done()
		return
	}
	newWatcher(f, current, apply).Run(ctx)
}

// watcher follows the files. The goroutine of Run owns it.
type watcher struct {
	*watch.Follower
	flags   *Flags
	current *Config
	apply   func(Update)
	// poll is how often the file is read without an event.
	poll time.Duration
	// seen is the content that apply was last called for, or the text of the error from
	// reading it.
	seen []byte
}

func newWatcher(f *Flags, current *Config, apply func(Update)) *watcher {
	w := &watcher{flags: f, current: current, apply: apply, poll: 10 * time.Second}
	w.Follower = watch.Files(f.files, w.look)
	return w
}

// look reads the file, calls apply if it has changed, and returns when to look again.
func (w *watcher) look(now time.Time) time.Duration {
	content, fault := w.read(), ""
	if len(content) == 0 {
		fault = "empty"
	}
	if w.BeingWritten(fault, now) || (w.seen != nil && bytes.Equal(content, w.seen)) {
		return w.poll
	}
	next, warnings, err := w.flags.Load()
	if !bytes.Equal(w.read(), content) {
		return w.Quiet // it changed while it was read
	}
	first := w.seen == nil
	w.seen = content
	if err != nil {
		w.apply(Update{Config: w.current, Warnings: warnings, Err: err})
		return w.poll
	}
	changes := Compare(w.current, next)
	if first && len(changes) == 0 {
		return w.poll // the file is as it was when the process loaded it
	}
	w.apply(Update{Config: next, Changes: changes, Warnings: warnings})
	return w.poll
}

// read returns the content of the files, or why one cannot be read. It is empty if one of them is.
func (w *watcher) read() (all []byte) {
	for _, file := range w.flags.files() {
		content, err := os.ReadFile(file)
		switch {
		case err != nil:
			return []byte(err.Error())
		case len(content) == 0:
			return []byte{}
		}
		all = append(all, content...)
	}
	return all
}
