// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
)

// pathChanges is the path that returns the changes since a revision; see Changes.
const pathChanges = "/" + inspect.Version + "/changes"

const (
	// refresh is the shortest time between two walks over all Services.
	refresh = 500 * time.Millisecond
	// forget is how long after the last query of a page the picture is kept.
	forget = time.Minute
	// goneMax bounds the deleted Services that are remembered.
	goneMax = 10_000
)

// Changes is the answer about all Services, without unchanged ones.
type Changes struct {
	// Epoch identifies the picture in which Revision counts. A page with another epoch starts again.
	Epoch    string `json:"epoch"`
	Revision uint64 `json:"revision"`
	// Full means that Items contains all Services.
	Full  bool              `json:"full"`
	Items []json.RawMessage `json:"items"`
	// Gone are the deleted Services, as namespace/name.
	Gone   []string       `json:"gone,omitempty"`
	Status inspect.Status `json:"status"`
}

// row is what the list shows of a Service.
type row struct {
	Namespace  string         `json:"namespace"`
	Name       string         `json:"name"`
	ClusterIPs []string       `json:"clusterIPs"`
	Ports      []inspect.Port `json:"ports"`
	state.Record
}

// feed keeps a picture of all Services while pages are open, so that it sends each page only the changes.
//
// Concurrency: requests take turns. The lock is held while the source is queried, which delays other pages but not the
// proxy.
type feed struct {
	source  inspect.Source
	mu      sync.Mutex
	picture *picture
	idle    *time.Timer
}

// picture contains all Services at one moment.
type picture struct {
	epoch    string
	revision uint64
	taken    time.Time
	rows     map[service.Key]shown
	// gone contains the revisions at which Services were deleted. It does not contain deletions up to forgotten any more.
	gone      map[service.Key]uint64
	forgotten uint64
}

// shown is a row as text, with the revision at which the text changed last.
type shown struct {
	text     []byte
	revision uint64
	// walk is the time of the last walk that found the Service.
	walk time.Time
}

func newFeed(source inspect.Source) *feed { return &feed{source: source} }

// ServeHTTP answers with the changes since a revision of an epoch.
func (f *feed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	since, err := strconv.ParseUint(r.URL.Query().Get("since"), 10, 64)
	if err != nil {
		since = 0
	}
	changes := f.changes(r.Context(), r.URL.Query().Get("epoch"), since)
	if r.Context().Err() != nil {
		return
	}
	changes.Status = f.source.Status()
	changes.Status.APIVersion = inspect.Version
	text, err := json.Marshal(changes)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(text) // an error means that the client disconnected
}

func (f *feed) changes(ctx context.Context, epoch string, since uint64) Changes {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.idle != nil {
		f.idle.Stop()
	}
	f.idle = time.AfterFunc(forget, f.drop)
	if f.picture == nil {
		f.picture = &picture{epoch: rand.Text(), rows: map[service.Key]shown{}, gone: map[service.Key]uint64{}}
	}
	p := f.picture
	if now := time.Now(); now.Sub(p.taken) >= refresh {
		p.walk(ctx, f.source, now)
	}
	return p.since(epoch, since)
}

// drop frees the picture when no page has asked for a while.
func (f *feed) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.picture = nil
}

// walk updates the picture. If the client disconnects meanwhile, walk changes rows but removes none.
func (p *picture) walk(ctx context.Context, source inspect.Source, now time.Time) {
	next := p.revision + 1
	changed := false
	source.Services(ctx, func(service.Key) bool { return true }, func(s *inspect.Service) bool {
		key := service.Key{Namespace: s.Namespace, Name: s.Name}
		text := rowText(s)
		before, known := p.rows[key]
		if known && bytes.Equal(before.text, text) {
			before.walk = now
			p.rows[key] = before
		} else {
			p.rows[key] = shown{text, next, now}
			delete(p.gone, key)
			changed = true
		}
		return ctx.Err() == nil
	})
	if ctx.Err() == nil {
		p.taken = now
		changed = p.sweep(now, next) || changed
	}
	if changed {
		p.revision = next
	}
}

// sweep removes the Services that the walk did not find.
func (p *picture) sweep(now time.Time, revision uint64) (changed bool) {
	for key, s := range p.rows {
		if !s.walk.Equal(now) {
			delete(p.rows, key)
			p.gone[key] = revision
			changed = true
		}
	}
	if len(p.gone) > goneMax {
		clear(p.gone)
		p.forgotten = revision
	}
	return changed
}

// since returns the changes since a revision of an epoch.
func (p *picture) since(epoch string, since uint64) Changes {
	c := Changes{Epoch: p.epoch, Revision: p.revision, Items: []json.RawMessage{}}
	if epoch != p.epoch || since < p.forgotten || since > p.revision {
		c.Full, since = true, 0
	}
	for _, s := range p.rows {
		if c.Full || s.revision > since {
			c.Items = append(c.Items, s.text)
		}
	}
	if !c.Full {
		for key, at := range p.gone {
			if at > since {
				c.Gone = append(c.Gone, key.String())
			}
		}
	}
	return c
}

func rowText(s *inspect.Service) []byte {
	text, err := json.Marshal(row{s.Namespace, s.Name, s.ClusterIPs, s.Ports, s.Record})
	if err != nil {
		panic("ui: a row that JSON cannot express: " + err.Error())
	}
	return text
}
