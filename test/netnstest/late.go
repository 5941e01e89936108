// SPDX-License-Identifier: Apache-2.0

package netnstest

import (
	"fmt"
	"time"
)

const (
	// slowMin is what TCP needs at least for a connection of which it lost several packets in a row.
	slowMin = 5 * time.Second
	// PromptMax is how long one takes at most of which no packet was lost.
	PromptMax = 900 * time.Millisecond
)

// Slow finds Services that were out of reach for a while, and whose clients TCP saved: their exchanges
// succeed, but later than slowMin. On a busy machine any exchange may be late. What must not happen is
// that those of one Service are slow while at most one in a hundred of the others is late. An outage of
// all Services is not found here: it loses datagrams, which nobody sends again.
type Slow[S comparable] struct {
	// begun counts all exchanges by the second in which they began.
	begun map[int64]int
	late  []Late[S]
}

// Late is an exchange that was answered late, with the Service.
type Late[S comparable] struct {
	Of S
	Exchange
	all, others int
}

// String says what was found.
func (l Late[S]) String() string {
	return fmt.Sprintf("%v was answered after %v, while %d of %d exchanges were late with others",
		l.Of, l.Ended.Sub(l.Began).Round(time.Millisecond), l.others, l.all)
}

// Note counts an exchange with a Service. It is not safe for concurrent use.
func (s *Slow[S]) Note(of S, e Exchange) {
	if s.begun == nil {
		s.begun = map[int64]int{}
	}
	s.begun[e.Began.Unix()]++
	if e.Ended.Sub(e.Began) > PromptMax {
		s.late = append(s.late, Late[S]{Of: of, Exchange: e})
	}
}

// Alone returns the exchanges that were slow while those of other Services were not late.
func (s *Slow[S]) Alone() (found []Late[S]) {
	for _, e := range s.late {
		if e.Ended.Sub(e.Began) < slowMin {
			continue
		}
		for second := e.Began.Unix(); second <= e.Ended.Unix(); second++ {
			e.all += s.begun[second]
		}
		for _, o := range s.late {
			if o.Of != e.Of && o.Began.Before(e.Ended) && o.Ended.After(e.Began) {
				e.others++
			}
		}
		if e.all >= 100 && e.others*100 <= e.all {
			found = append(found, e)
		}
	}
	return found
}
