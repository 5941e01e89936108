// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/proxy"
)

// feed stands between the API and a process. What happens counts for the API immediately; the
// process learns of it at its own time, stream by stream, as client-go delivers: within a
// stream in order, with what was missed in a separate list, and after a start from a list
// that may be older than the last one that the former process had seen.
type feed struct {
	mu      sync.Mutex
	cluster *cluster
	to      *process
	random  random
	// base is what all was at the last check. A new process may be told that first.
	base  picture
	lines [streams]line
	// late is when something was last told later than it happened.
	late time.Time
}

// line is the state of one stream.
type line struct {
	// log has what was said since the last check. The process has been told the first
	// told of it.
	log  []news
	told int
	// stalls counts the reasons why nothing gets through. Listed is set once this process
	// has a first list. Missed is set if what was said has to come in a list.
	stalls         int
	listed, missed bool
}

func newFeed(c *cluster, d random) *feed { return &feed{cluster: c, random: d, base: c.clone()} }

// say makes something happen.
func (f *feed) say(n news) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cluster.learn(&f.cluster.picture, n)
	l := &f.lines[n.of]
	l.log = append(l.log, n)
	f.deliver(n.of)
}

// reconfigure changes the settings of the node, which only the next process learns.
func (f *feed) reconfigure(settings proxy.NodeSettings) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cluster.settings = settings
	f.cluster.recordAll(&f.cluster.picture)
	f.cluster.noteFacts(f.cluster.facts())
}

// learn makes a picture follow, and notes the new states of Services.
func (c *cluster) learn(p *picture, n news) {
	changed := n.learn(p)
	if changed == nil {
		c.recordAll(p)
		c.noteFacts(p.facts())
		return
	}
	for _, i := range changed {
		c.record(i, p.state(i))
	}
}

// deliver tells what is due of a stream.
func (f *feed) deliver(of stream) {
	l := &f.lines[of]
	if l.stalls > 0 || !l.listed || f.to == nil {
		return
	}
	if l.missed {
		l.missed, l.told = false, len(l.log)
		f.tell(listed(of, f.cluster.clone(), f.random))
		f.late = time.Now()
	}
	for ; l.told < len(l.log); l.told++ {
		if l.told < len(l.log)-1 {
			f.late = time.Now()
		}
		f.tell(l.log[l.told])
	}
}

// tell tells the process. Until it knows the first full picture, nothing follows from what
// it knows.
func (f *feed) tell(n news) {
	if f.to.primed {
		f.cluster.learn(&f.cluster.told, n)
	} else {
		n.learn(&f.cluster.told)
	}
	n.tell(f.to)
}

// stall lets nothing of a stream through for a while. If it misses the events, they come in
// a list in the end.
func (f *feed) stall(of stream, d time.Duration, misses bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lines[of].stalls++
	process := f.to
	time.AfterFunc(d, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		l := &f.lines[of]
		if f.to != process || l.stalls == 0 {
			return // everything was let through meanwhile
		}
		l.stalls--
		l.missed = l.missed || misses
		f.late = time.Now()
		f.deliver(of)
	})
}

// relist lists a stream again.
func (f *feed) relist(of stream) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lines[of].missed = true
	f.deliver(of)
}

// start feeds a new process. Past is how probable it is, in percent, that a list is older
// than what happened last; spread is how long lists may take.
func (f *feed) start(to *process, past int, spread time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.to, f.cluster.told = to, newPicture(f.cluster.settings, f.cluster.hosts)
	for _, i := range f.random.Perm(int(streams)) {
		l := &f.lines[i]
		l.stalls, l.listed, l.missed = 0, false, false
		of := stream(i)
		at := len(l.log)
		if of < ofHosts && f.random.percent(past) {
			at = f.random.IntN(at + 1)
		}
		list := func() {
			from := f.base.clone()
			for _, n := range l.log[:at] {
				n.learn(&from)
			}
			l.listed, l.told = true, at
			f.tell(listed(of, from, f.random))
			f.deliver(of)
		}
		if spread == 0 || of >= ofHosts {
			list()
			continue
		}
		time.AfterFunc(time.Duration(f.random.Int64N(int64(spread))), func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.to == to && !l.listed {
				list()
			}
		})
	}
}

// stop tells the process nothing more.
func (f *feed) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.to = nil
}

// complete reports whether every stream has been listed.
func (f *feed) complete() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.lines {
		if !f.lines[i].listed {
			return false
		}
	}
	return true
}

// primed notes that the process acts on what it knows from now on.
func (f *feed) primed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.to.primed = true
	f.cluster.recordAll(&f.cluster.told)
	f.cluster.noteFacts(f.cluster.told.facts())
	f.to.cache.Prime()
}

// flush lets everything through.
func (f *feed) flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.lines {
		if f.lines[i].stalls > 0 {
			f.lines[i].stalls, f.lines[i].missed = 0, true
			f.late = time.Now()
		}
		f.deliver(stream(i))
	}
}

// lags reports whether the process may not know yet what counts for the API.
func (f *feed) lags() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.lines {
		if l := &f.lines[i]; l.stalls > 0 || !l.listed || l.told < len(l.log) {
			return true
		}
	}
	return time.Since(f.late) < silenceMax
}

// checked notes that the process and the kernel have everything.
func (f *feed) checked() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.base = f.cluster.clone()
	for i := range f.lines {
		f.lines[i].log, f.lines[i].told = nil, 0
	}
}

// again announces everything that the process knows once more.
func (f *feed) again() {
	f.mu.Lock()
	defer f.mu.Unlock()
	announceAgain(&f.cluster.told, f.to.cache)
}
