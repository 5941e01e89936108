package metrics

import (
	"context"
	"errors"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/observe/usage"
	"github.com/sluice-proxy/sluice/service"
)

// ErrUnread means that the counts of at least one family cannot be read.
var ErrUnread = errors.New("the kernel does not return its counts")

// Amounts returns the totals of all Services and endpoints, and in userspace mode their open connections. It reads
// the kernel and takes time for each Service, so it is never called for a change. A mode that counts nothing
// has no amounts. Only a usage.Recorder calls it, except in userspace mode, where any goroutine may.
func (m *Metrics) Amounts(ctx context.Context) (totals usage.Amounts, open map[usage.Of]uint64, err error) {
	totals = usage.Amounts{}
	if m.config.Traffic != nil {
		readings := m.config.Traffic(ctx) // a family that does not answer has none, which is different from 0
		m.lastReading.Store(&readings)
		for _, d := range m.config.Book.Domains {
			if !d.Auxiliary && readings[d.Family] == nil {
				return nil, nil, ErrUnread
			}
		}
		for _, sums := range m.sum(readings) {
			for key, c := range sums {
				addAmounts(totals, key, c)
			}
		}
	}
	if m.config.Relayed == nil {
		return totals, nil, nil
	}
	open = map[usage.Of]uint64{}
	for _, row := range m.config.Book.Look().Each(func(key service.Key) bool { return key != service.Node }) {
		for _, of := range m.config.Relayed(row.Key) {
			if of == nil {
				continue
			}
			addAmounts(totals, row.Key, of.counted())
			open[usage.Of{Service: row.Key}] += of.Open
			for endpoint, e := range of.Endpoints {
				open[usage.Of{Service: row.Key, Endpoint: endpoint}] += e.Open
			}
		}
	}
	return totals, open, nil
}

func addAmounts(to usage.Amounts, key service.Key, c *counted) {
	to.Add(usage.Of{Service: key}, c.At)
	for endpoint, counts := range c.endpoints {
		to.Add(usage.Of{Service: key, Endpoint: endpoint}, traffic.At{Counts: counts})
	}
}
