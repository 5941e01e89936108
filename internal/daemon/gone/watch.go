// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package gone finds out whether an endpoint is out of the rules: [Watch] answers for the proxy of this process,
// [Handler] answers over the network, and [Wait] asks the proxies of many nodes.
package gone

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/service"
)

// Proxy is what a Watch needs of a proxy. A proxy.Proxy is one.
type Proxy interface {
	Status() []aggregator.Status
	Search(ctx context.Context, domain string, sought []*ledger.Sought) error
}

const (
	// waitingMax bounds the questions that wait.
	waitingMax = 1000
	// searchTime bounds the search in one domain.
	searchTime = 2 * time.Minute
	// look is the pause between two looks at whether anything changed, and again the time after which a search is
	// repeated anyway.
	look, again = 50 * time.Millisecond, 5 * time.Second
)

// Watch answers questions about endpoints. One search answers all questions that wait when it begins, and while
// there are none, nothing runs.
type Watch struct {
	proxy Proxy
	// others returns why rules of another proxy or mode, which no ledger contains, may still send connections.
	others func() error
	// news contains a token after a new question.
	news chan struct{}

	mu      sync.Mutex
	waiting []*question
	// running is set while a goroutine answers.
	running bool
}

// question is an endpoint whose answer a caller awaits.
type question struct {
	ctx    context.Context
	at     netip.AddrPort
	until  time.Time
	answer chan Answer
}

// Answer lists the Services that send new connections to an endpoint.
type Answer struct {
	// At is the time for which the answer holds.
	At time.Time
	// By are some of them, and More means that there are others.
	By   []Sender
	More bool
	// Err is why they are not known; nil if they are.
	Err error
	of  netip.AddrPort
}

// Sender is a Service with the domain whose rules send to an endpoint; service.Node for the node's own rules.
type Sender struct {
	Key    service.Key
	Domain string
}

// Gone reports whether the endpoint gets no new connections.
func (a *Answer) Gone() bool { return len(a.By) == 0 && a.Err == nil }

// New returns a Watch. others returns an error while rules of another proxy or mode may send connections of this node.
func New(p Proxy, others func() error) *Watch {
	return &Watch{proxy: p, others: others, news: make(chan struct{}, 1)}
}

var (
	errMany = fmt.Errorf("%d questions about endpoints are waiting already", waitingMax)
	errSlow = errors.New("the search did not end in time")
)

// Ask answers once the endpoint is gone, or after a time.
func (w *Watch) Ask(ctx context.Context, at netip.AddrPort, wait time.Duration) Answer {
	q := &question{ctx: ctx, at: at, until: time.Now().Add(wait), answer: make(chan Answer, 1)}
	if !w.add(q) {
		return Answer{At: time.Now(), Err: errMany}
	}
	select {
	case a := <-q.answer:
		return a
	case <-ctx.Done():
		return Answer{At: time.Now(), Err: errSlow}
	}
}

// add adds a question, and makes a goroutine answer it.
func (w *Watch) add(q *question) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) >= waitingMax {
		return false
	}
	w.waiting = append(w.waiting, q)
	if !w.running {
		w.running = true
		go w.run()
	}
	select {
	case w.news <- struct{}{}:
	default: // one is enough
	}
	return true
}

// take returns the questions that wait. If there are none, nothing runs any more.
func (w *Watch) take() []*question {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.news: // of questions that are taken now
	default:
	}
	w.waiting = slices.DeleteFunc(w.waiting, func(q *question) bool { return q.ctx.Err() != nil })
	w.running = len(w.waiting) > 0
	return slices.Clone(w.waiting)
}

// run answers until no question waits.
func (w *Watch) run() {
	for {
		asked := w.take()
		if len(asked) == 0 {
			return
		}
		before := w.state()
		answers := w.search(asked)
		w.deliver(asked, answers)
		w.rest(before)
	}
}

// deliver answers those questions that need not wait any longer.
func (w *Watch) deliver(asked []*question, answers map[netip.AddrPort]*Answer) {
	done := map[*question]bool{}
	for _, q := range asked {
		if a := answers[q.at]; a.Gone() || errors.Is(a.Err, aggregator.ErrEnded) || !time.Now().Before(q.until) {
			q.answer <- *a // has room: there is one answer
			done[q] = true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = slices.DeleteFunc(w.waiting, func(q *question) bool { return done[q] })
}

// search asks all domains about the endpoints of the questions, one after the other.
func (w *Watch) search(asked []*question) map[netip.AddrPort]*Answer {
	others := w.others() // before the search: if they end during it, the next search sees that
	answers := map[netip.AddrPort]*Answer{}
	of := service.PerFamily[[]*Answer]{}
	for _, q := range asked {
		if answers[q.at] == nil {
			a := &Answer{of: q.at, Err: others}
			answers[q.at] = a
			family := service.FamilyOf(q.at.Addr())
			of[family] = append(of[family], a)
		}
	}
	for _, some := range of {
		if len(some) == 0 {
			continue
		}
		for _, status := range w.proxy.Status() {
			w.searchDomain(status.Domain, some)
		}
		for _, a := range some {
			a.At = time.Now()
		}
	}
	return answers
}

// searchDomain adds the senders of one domain to the answers about one family.
func (w *Watch) searchDomain(domain string, answers []*Answer) {
	ctx, cancel := context.WithTimeout(context.Background(), searchTime)
	defer cancel()
	sought := make([]*ledger.Sought, len(answers))
	for i, a := range answers {
		sought[i] = &ledger.Sought{At: a.of}
	}
	err := w.proxy.Search(ctx, domain, sought)
	for i, a := range answers {
		for _, key := range sought[i].By {
			if len(a.By) >= ledger.SendersMax {
				a.More = true
				break
			}
			a.By = append(a.By, Sender{Key: key, Domain: domain})
		}
		a.More = a.More || sought[i].More
		if err != nil && (a.Err == nil || errors.Is(err, aggregator.ErrEnded)) {
			a.Err = err
		}
	}
}

// state is what changes with the rules of a domain.
type state struct {
	batches         uint64
	written         time.Time
	failures, dirty int
	open            bool
}

// state returns the state of each domain, after an element for whether others may send.
func (w *Watch) state() (all []state) {
	all = append(all, state{open: w.others() == nil})
	for _, s := range w.proxy.Status() {
		all = append(all, state{s.Batches, s.LastWrite, s.Failures, s.Ledger.Dirty, s.Open})
	}
	return all
}

// rest waits for a reason to search again: a new question, other rules, the deadline of a question, or the time again.
func (w *Watch) rest(before []state) {
	w.mu.Lock()
	next := time.Now().Add(again)
	for _, q := range w.waiting {
		if q.until.Before(next) {
			next = q.until
		}
	}
	idle := len(w.waiting) == 0
	w.mu.Unlock()
	for !idle && time.Now().Before(next) && slices.Equal(before, w.state()) {
		select {
		case <-w.news:
			return
		case <-time.After(min(look, time.Until(next))):
		}
	}
}
