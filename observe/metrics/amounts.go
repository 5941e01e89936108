// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"

	"github.com/sluice-proxy/sluice/observe/usage"
	"github.com/sluice-proxy/sluice/service"
)

// ErrUnread means that the counts of at least one family cannot be read.
var ErrUnread = errors.New("the kernel does not return its counts")

// Amounts returns the totals of all Services and endpoints. It reads the kernel and takes time for each Service, so it
// is never called for a change. A mode that counts nothing has no amounts. Only a usage.Recorder calls it.
func (m *Metrics) Amounts(ctx context.Context) (usage.Amounts, error) {
	all := counted{}
	if m.config.Traffic != nil {
		readings := m.config.Traffic(ctx) // a family that does not answer has none, which is different from 0
		m.lastReading.Store(&readings)
		for _, d := range m.config.Book.Domains {
			if !d.Auxiliary && readings[d.Family] == nil {
				return nil, ErrUnread
			}
		}
		all = m.sum(readings)
	}
	if m.config.Relayed != nil {
		for _, row := range m.config.Book.Look().Each(func(key service.Key) bool { return key != service.Node }) {
			all[row.Key] = m.config.Relayed(row.Key)
		}
	}
	totals := usage.Amounts{}
	for key, families := range all {
		for _, c := range families {
			if c == nil {
				continue
			}
			totals.Add(usage.Of{Service: key}, c.At)
			for endpoint, e := range c.Endpoints {
				totals.Add(usage.Of{Service: key, Endpoint: endpoint}, e.At)
			}
		}
	}
	return totals, nil
}
