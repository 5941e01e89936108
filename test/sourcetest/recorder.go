// SPDX-License-Identifier: Apache-2.0

// Package sourcetest helps to test what feeds a source.Cache.
package sourcetest

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// Recorder is a sink that writes down every post as one line:
//
//	spec ns/a            spec ns/a gone
//	slice ns/a x         slice ns/a x gone
//	node n               ranges 10.0.0.0/8        primed ns/a ns/b
//
// It is safe for concurrent use.
type Recorder struct {
	mu      sync.Mutex
	lines   []string
	exist   map[service.Key]bool
	changed chan struct{}
}

var _ source.Sink = (*Recorder)(nil)

// NewRecorder makes a recorder without lines.
func NewRecorder() *Recorder {
	return &Recorder{exist: map[service.Key]bool{}, changed: make(chan struct{})}
}

// PostSpec implements source.Sink.
func (r *Recorder) PostSpec(key service.Key, spec *service.Spec) {
	r.mu.Lock()
	if delete(r.exist, key); spec != nil {
		r.exist[key] = true
	}
	r.mu.Unlock()
	r.add("spec %s%s", key, gone(spec == nil))
}

// PostSlice implements source.Sink.
func (r *Recorder) PostSlice(key service.Key, name string, slice *service.Slice) {
	r.add("slice %s %s%s", key, name, gone(slice == nil))
}

// PostNode implements source.Sink.
func (r *Recorder) PostNode(node *service.NodeObject) { r.add("node %s", node.Name) }

// PostServiceCIDRs implements source.Sink.
func (r *Recorder) PostServiceCIDRs(ranges []netip.Prefix) {
	r.add("ranges %s", strings.Trim(fmt.Sprint(ranges), "[]"))
}

// Primed implements source.Sink. The line names the Services that exist.
func (r *Recorder) Primed() {
	r.mu.Lock()
	keys := slices.SortedFunc(maps.Keys(r.exist), service.Key.Compare)
	r.mu.Unlock()
	r.add("primed %s", strings.Trim(fmt.Sprint(keys), "[]"))
}

func gone(gone bool) string {
	if gone {
		return " gone"
	}
	return ""
}

func (r *Recorder) add(format string, arguments ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, strings.TrimSpace(fmt.Sprintf(format, arguments...)))
	close(r.changed)
	r.changed = make(chan struct{})
}

// Take returns the lines so far and forgets them.
func (r *Recorder) Take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := r.lines
	r.lines = nil
	return lines
}

// Expect takes the lines so far and fails the test unless they are want.
func (r *Recorder) Expect(t testing.TB, want ...string) {
	t.Helper()
	if got := r.Take(); !slices.Equal(got, want) {
		t.Fatalf("posts differ\n got: %s\nwant: %s", strings.Join(got, "; "), strings.Join(want, "; "))
	}
}

// Await waits until line was recorded, and returns all lines up to now, which it
// forgets.
func (r *Recorder) Await(t testing.TB, line string) []string {
	t.Helper()
	deadline := time.After(testenv.Patience)
	for {
		r.mu.Lock()
		if slices.Contains(r.lines, line) {
			lines := r.lines
			r.lines = nil
			r.mu.Unlock()
			return lines
		}
		changed, so := r.changed, strings.Join(r.lines, "; ")
		r.mu.Unlock()
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("no post %q within %s; so far: %s", line, testenv.Patience, so)
		}
	}
}
