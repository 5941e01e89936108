package memory

import (
	"net/netip"
	"slices"
	"time"
)

// recentBook holds the lists of the recent match (xt_recent in the kernel). A
// list lives as long as a rule names it.
type recentBook struct {
	lists map[string]*recentList
	// parent is read, never written, for a list that is not in lists; nil for
	// the kernel's own book.
	parent *recentBook
}

// recentList is one list, the client remembered longest ago first. The kernel
// keeps several moments per client; the newest decides for the options known
// here.
type recentList struct{ entries []recentEntry }

type recentEntry struct {
	client netip.Addr
	at     time.Time
}

// recentMax is the kernel's default for how many clients a list remembers
// (module parameter ip_list_tot); the one remembered longest ago gives way.
const recentMax = 100

func newRecentBook() *recentBook { return &recentBook{lists: make(map[string]*recentList)} }

// fork gives a book that begins with the same content; changes to it do not
// reach the original.
func (b *recentBook) fork() *recentBook {
	forked := newRecentBook()
	forked.parent = b
	return forked
}

func (b *recentBook) list(name string) *recentList {
	if l := b.lists[name]; l != nil || b.parent == nil {
		return l
	}
	return b.parent.list(name)
}

// own gives a list that may be changed.
func (b *recentBook) own(name string) *recentList {
	l := b.lists[name]
	if l == nil {
		l = &recentList{}
		if inherited := b.list(name); inherited != nil {
			l.entries = slices.Clone(inherited.entries)
		}
		b.lists[name] = l
	}
	return l
}

// remember notes that the client was here now.
func (b *recentBook) remember(name string, client netip.Addr, now time.Time) {
	l := b.own(name)
	l.entries = slices.DeleteFunc(l.entries, func(e recentEntry) bool { return e.client == client })
	if len(l.entries) >= recentMax {
		l.entries = slices.Delete(l.entries, 0, 1)
	}
	l.entries = append(l.entries, recentEntry{client: client, at: now})
}

// seen tells whether the client was remembered at since or later.
func (b *recentBook) seen(name string, client netip.Addr, since time.Time) bool {
	l := b.list(name)
	return l != nil && slices.ContainsFunc(l.entries, func(e recentEntry) bool {
		return e.client == client && !e.at.Before(since)
	})
}

// reap forgets the client remembered longest ago if that was before since; the
// kernel looks at one entry per packet, too.
func (b *recentBook) reap(name string, since time.Time) {
	l := b.list(name)
	if l == nil || len(l.entries) == 0 || !l.entries[0].at.Before(since) {
		return
	}
	l = b.own(name)
	l.entries = slices.Delete(l.entries, 0, 1)
}
