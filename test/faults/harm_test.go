package faults

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/service"
)

// The invariant of all writing: no Service that was served right before a write is
// served worse after it, unless the API asked for it. The notary compares the kernel
// before and after each write: of a Service that was wholly there, everything stays as
// long as its rendering does. Of one that the kernel refuses, that is its last rendering
// that was good.

// restless is how long after a change a Service is not compared: the batch at hand may
// still be of the rendering before.
const restless = 200 * time.Millisecond

// promises gives what was rendered last, and not spoiled, for all who have not changed
// for a moment.
func (p *poison) promises() map[service.Key][]dataplane.Object {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := maps.Clone(p.good)
	for key, at := range p.changed {
		if time.Since(at) < restless {
			delete(all, key)
		}
	}
	return all
}

// promise takes note of a good rendering. The lock is held.
func (p *poison) promise(key service.Key, objects []dataplane.Object) {
	if _, known := p.good[key]; known {
		p.changed[key] = time.Now()
	}
	p.good[key] = objects
}

// before is what a write finds.
type before struct {
	picture  picture
	promises map[service.Key][]dataplane.Object
	// calm is what strangers had done; nothing is compared if that is not known, or
	// while they are at it.
	calm  int64
	known bool
}

// find looks at the kernel before a write.
func (n *notary) find(ctx context.Context) (b before) {
	b.calm = n.strangers()
	b.promises = n.promises()
	b.picture, b.known = pictureNow(ctx, n.reader)
	b.known = b.known && b.calm%2 == 0
	return b
}

// pictureNow reads once; false when somebody changes things meanwhile.
func pictureNow(ctx context.Context, reader *nftables.Writer) (picture, bool) {
	objects, err := reader.Read(context.WithoutCancel(ctx))
	return pictureOf(objects), err == nil
}

// harm gives what a write has taken from Services, and counts the Services compared.
func (n *notary) harm(ctx context.Context, b before, receipt dataplane.Receipt) (errs []error, compared int) {
	if !b.known {
		return nil, 0
	}
	now := n.promises()
	after, known := pictureNow(ctx, n.reader)
	if !known || n.strangers() != b.calm {
		return nil, 0
	}
	for key, objects := range b.promises {
		same := len(objects) > 0 && len(now[key]) > 0 && &objects[0] == &now[key][0]
		promised := pictureOf(objects)
		if _, lacked := promised.missing(b.picture); !same || lacked {
			continue
		}
		compared++
		if id, lost := promised.missing(after); lost {
			errs = append(errs, fmt.Errorf("%v was served before a write (%v), which took %s %x away", key, receipt, id.Container, id.Name))
		}
	}
	return errs, compared
}
