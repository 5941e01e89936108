package metrics

import (
	"hash/maphash"
	"sync"

	"github.com/sluice-proxy/sluice/service"
)

// roster lists the Services that have an actor, the node's own included, with what
// each has been through. It is as large as the directory is, and forgets whoever has
// left.
//
// It is cut into parts with a lock each, so that somebody who copies it holds up
// those who write for one part's length at most.
type roster struct {
	seed  maphash.Seed
	parts [rosterParts]rosterPart
}

// rosterParts keeps a part of 50,000 Services below 1,000 records.
const rosterParts = 64

type rosterPart struct {
	mu      sync.Mutex
	records map[service.Key]*record
	// draining holds the Services of which endpoints drain, which are few at any
	// time, and none in most modes.
	draining map[service.Key]service.PerFamily[int]
}

func newRoster() *roster {
	r := &roster{seed: maphash.MakeSeed()}
	for i := range r.parts {
		r.parts[i].records = map[service.Key]*record{}
	}
	return r
}

func (r *roster) part(key service.Key) *rosterPart {
	return &r.parts[maphash.Comparable(r.seed, key)%rosterParts]
}

// start takes note that an actor runs, and tells whether it is one that has failed
// before. One whose Service was gone for a while is a new one.
func (r *roster) start(key service.Key) (again bool) {
	p := r.part(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.records[key]
	if known == nil {
		known = newRecord()
		p.records[key] = known
	} else {
		known.restarts++
		// A new incarnation tells anew what drains.
		delete(p.draining, key)
		again = true
	}
	known.running = true
	return again
}

// update changes a record; a Service without an actor has none. Change runs under
// the lock.
func (r *roster) update(key service.Key, change func(*record)) {
	p := r.part(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.records[key]; known != nil {
		change(known)
	}
}

// end forgets a Service, and gives its last record.
func (r *roster) end(key service.Key) (last record, known bool) {
	p := r.part(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.records[key]
	if found == nil {
		return record{}, false
	}
	delete(p.records, key)
	delete(p.draining, key)
	return *found, true
}

// drains takes note of how many endpoints of a Service keep the connections they have.
func (r *roster) drains(key service.Key, family service.Family, endpoints int) {
	p := r.part(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.records[key] == nil {
		return
	}
	now := p.draining[key]
	now[family] = endpoints
	if now == (service.PerFamily[int]{}) {
		delete(p.draining, key)
		return
	}
	if p.draining == nil {
		p.draining = map[service.Key]service.PerFamily[int]{}
	}
	p.draining[key] = now
}

// len is the number of actors.
func (r *roster) len() int {
	n := 0
	for i := range r.parts {
		p := &r.parts[i]
		p.mu.Lock()
		n += len(p.records)
		p.mu.Unlock()
	}
	return n
}

// line is one Service's record, copied.
type line struct {
	key service.Key
	record
	draining service.PerFamily[int]
}

// copy gives the records that are wanted, in no order.
func (r *roster) copy(wanted func(service.Key) bool) []line {
	var lines, some []line
	for i := range r.parts {
		p := &r.parts[i]
		some = some[:0] // so that a long list never grows under a lock
		p.mu.Lock()
		for key, known := range p.records {
			if wanted(key) {
				some = append(some, line{key, *known, p.draining[key]})
			}
		}
		p.mu.Unlock()
		lines = append(lines, some...)
	}
	return lines
}
