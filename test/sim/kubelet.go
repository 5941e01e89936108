// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"sync/atomic"
	"time"

	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/service"
)

// kubelet asks a process for /livez as the probe of deploy/base has it. It does not kill: hangAlongside and a story say whether it
// may.
type kubelet struct {
	monitor *health.Monitor
	asked   time.Time
	row     int
	// killed is set once it would have killed the process.
	killed atomic.Bool
}

const (
	probePeriod = 10 * time.Second
	probeMax    = 6
)

func newKubelet(p *process) *kubelet {
	return &kubelet{asked: time.Now(), monitor: health.NewMonitor(health.Config{
		SyncPeriod: 30 * time.Second,
		Node:       func() *service.NodeObject { return &service.NodeObject{Name: thisNode} },
		Domains: func() (all []health.DomainStatus) {
			for i, s := range p.proxy.Status() {
				all = append(all, health.DomainStatus{Status: s, Family: service.Families[i]})
			}
			return all
		}})}
}

// probe is called often, and asks once in a period.
func (k *kubelet) probe() {
	if time.Since(k.asked) < probePeriod {
		return
	}
	k.asked = time.Now()
	state := k.monitor.State()
	if k.row++; state.Live() {
		k.row = 0
	}
	if k.row >= probeMax {
		k.killed.Store(true)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
