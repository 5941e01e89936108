package conntrack

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/sluice-proxy/sluice/mailbox"
	"github.com/sluice-proxy/sluice/service"
)

// keeper keeps the flows of one family right. Its goroutine owns the table and the
// pace; only the inbox is shared.
type keeper struct {
	family service.Family
	config Config
	open   func() kernel
	// inbox holds at most one picture per Service. Its capacity cannot be
	// exceeded: the number of Services is bounded by that of their actors.
	inbox *mailbox.Mailbox[service.Key, picture]
	table *table
	pace  pace
}

func newKeeper(family service.Family, config Config) *keeper {
	return &keeper{
		family: family, config: config,
		open:  func() kernel { return &netfilter{family: family, inside: config.Inside} },
		inbox: mailbox.New[service.Key](math.MaxInt, newer),
		table: newTable(config.Grace),
		pace:  pace{gather: config.Gather},
	}
}

// run works until the context ends.
func (k *keeper) run(ctx context.Context) {
	defer k.inbox.Close()
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	for {
		alarm.Reset(k.act(ctx))
		select {
		case <-ctx.Done():
			return
		case <-k.inbox.Wake():
			k.note(time.Now())
		case <-alarm.C:
		}
	}
}

// note takes what the Services' actors have said.
func (k *keeper) note(now time.Time) {
	entries, _ := k.inbox.Take(0)
	for _, e := range entries {
		if e.Message.repaired {
			k.table.doubt()
		}
		k.table.put(e.Key, e.Message, now)
	}
	k.hasPending(now)
}

// hasPending lets the pace know.
func (k *keeper) hasPending(now time.Time) {
	if len(k.table.pending) > 0 {
		k.pace.waiting(now)
	}
}

// act sweeps if it is time, and gives the pause until it is to be asked again.
func (k *keeper) act(ctx context.Context) time.Duration {
	ends, runs := k.table.expire(time.Now())
	k.hasPending(time.Now())
	at, due := k.pace.next()
	if due && !time.Now().Before(at) {
		k.sweep(ctx)
		at, due = k.pace.next()
	}
	if !due || runs && ends.Before(at) {
		at, due = ends, runs
	}
	if !due {
		return math.MaxInt64
	}
	return max(0, time.Until(at))
}

// sweep makes one attempt at what is pending.
func (k *keeper) sweep(ctx context.Context) {
	begin := time.Now()
	result, err := k.attempt(ctx)
	if ctx.Err() != nil {
		return // stopping is no failure
	}
	end := time.Now()
	result.Took = end.Sub(begin)
	if err == nil {
		k.pace.swept(end, result.Took)
	} else {
		k.pace.failed(end, result.Took, rand.Float64())
	}
	result.Err, result.Failures = err, k.pace.failures
	k.config.Listen(result)
}

func (k *keeper) attempt(ctx context.Context) (result Swept, err error) {
	kernel := k.open()
	defer func() { err = errors.Join(err, kernel.close()) }()
	s, err := newSweep(k.table, kernel, k.family, k.config.NodePorts(k.family))
	if err != nil {
		return Swept{Family: k.family, Frontends: len(k.table.pending)}, err
	}
	err = s.run(ctx)
	return s.result, err
}
