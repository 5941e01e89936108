// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	iptrender "github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/service"
)

// memoryKernel holds objects as they are written. It is writer and kernel in one.
type memoryKernel struct {
	mu      sync.Mutex
	objects map[dataplane.ID]dataplane.Object
	// rejected is a text that no object may contain; hang delays everything until it is
	// closed.
	rejected string
	hang     <-chan time.Time
}

func newMemoryKernel() *memoryKernel {
	return &memoryKernel{objects: map[dataplane.ID]dataplane.Object{}}
}

// writer returns the functions that the core calls.
func (k *memoryKernel) writer() dataplane.Writer {
	return dataplane.Writer{Write: k.Write, Read: k.Read, Origin: k}
}

// wait returns with the lock held.
func (k *memoryKernel) wait() {
	k.mu.Lock()
	if hang := k.hang; hang != nil {
		k.mu.Unlock()
		<-hang
		k.mu.Lock()
	}
}

func (k *memoryKernel) set(rejected string, hang <-chan time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rejected, k.hang = rejected, hang
}

// Write implements Write of dataplane.Writer: it takes a batch whole, or not at all.
func (k *memoryKernel) Write(_ context.Context, batch *dataplane.Batch) dataplane.Receipt {
	k.wait()
	defer k.mu.Unlock()
	r := dataplane.Receipt{Written: dataplane.Written{Objects: len(batch.Changes), Calls: 1}}
	certain := map[dataplane.ID]*dataplane.Object{}
	for _, c := range batch.Changes {
		if o, there := k.objects[c.ID]; there {
			certain[c.ID] = &o
		}
		if c.After == nil {
			continue
		}
		r.Written.Lines += strings.Count(c.After.Body, "\n") + 1
		if k.rejected != "" && strings.Contains(c.After.Body, k.rejected) {
			r.Outcome = dataplane.Rejected
			r.Err = errors.New("iptables-restore: RULE_APPEND failed (Invalid argument)")
		}
	}
	if r.Outcome != dataplane.Landed {
		for _, c := range batch.Changes {
			if certain[c.ID] == nil {
				certain[c.ID] = nil
			}
		}
		r.Certain = certain
		return r
	}
	for _, c := range batch.Changes {
		if c.After == nil {
			delete(k.objects, c.ID)
		} else {
			k.objects[c.ID] = *c.After
		}
	}
	return r
}

// Read implements Read of dataplane.Writer.
func (k *memoryKernel) Read(context.Context) ([]dataplane.Object, error) {
	k.wait()
	defer k.mu.Unlock()
	objects := slices.Collect(maps.Values(k.objects))
	slices.SortFunc(objects, func(a, b dataplane.Object) int { return a.ID.Compare(b.ID) })
	return objects, nil
}

// Owner implements dataplane.Origin: the kernel keeps no names.
func (k *memoryKernel) Owner(*dataplane.Object) (key service.Key, named bool) { return key, false }

// Refs implements dataplane.Origin.
func (k *memoryKernel) Refs(*dataplane.Object) []dataplane.ID { return nil }

// rules counts the rules of ours in one table, without the jumps to them.
func (k *memoryKernel) rules(table iptrender.Table) float64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for id, o := range k.objects {
		if id.Container == string(table) && iptrender.OwnsChain(table, id.Name) && o.Body != "" {
			n += strings.Count(o.Body, "\n") + 1
		}
	}
	return float64(n)
}

// damage removes the first rule of a chain.
func (k *memoryKernel) damage(table iptrender.Table, chain string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	id := dataplane.ID{Container: string(table), Name: chain}
	o, there := k.objects[id]
	if !there {
		panic(fmt.Sprintf("there is no chain %s", chain))
	}
	_, o.Body, _ = strings.Cut(o.Body, "\n")
	k.objects[id] = o
}
