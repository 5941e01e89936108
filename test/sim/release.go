package sim

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/test/release"
)

// toOtherRelease rewrites the family's table as another release would have written it.
// Packets end as before.
func (s *stack) toOtherRelease() error {
	g := s.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(s.ours(isTable)) == 0 {
		return nil
	}
	writer := nftables.NewWriter(s.family, nftables.WriterConfig{Open: s.kernel.Open})
	objects, err := writer.Read(context.Background())
	if err != nil {
		return err
	}
	if err := s.commit(nftables.TableName, message{kind: unix.NFT_MSG_DELTABLE}); err != nil {
		return err
	}
	batch := &dataplane.Batch{}
	for _, o := range release.Translated(objects) {
		batch.Changes = append(batch.Changes, dataplane.Change{ID: o.ID, After: &o})
	}
	writer = nftables.NewWriter(s.family, nftables.WriterConfig{Open: s.kernel.Open})
	if receipt := writer.Write(context.Background(), batch); receipt.Outcome != dataplane.Landed {
		return fmt.Errorf("%v: %v", receipt, receipt.Err)
	}
	if err := s.formerScaffold(); err != nil {
		return err
	}
	for p, f := range g.fronts {
		before := f.share
		if steps := g.look(f, p); f.share < before-1e-6 {
			return fmt.Errorf("packet %v to %v: share %.3f, then %.3f%s", p.Src, p.Dst, before, f.share, steps)
		}
	}
	return nil
}
