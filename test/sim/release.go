// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
)

var classChain = regexp.MustCompile(`cluster-(\d)`)

// rename gives the chains that a body names the names that another release might give them.
func rename(body string) string {
	return strings.ReplaceAll(classChain.ReplaceAllString(body, "klaster-$1"), "services\x00", "dispatch\x00")
}

// renamedChain returns a chain's other name.
func renamedChain(name string) string { return strings.TrimSuffix(rename(name+"\x00"), "\x00") }

// translated gives chains other names of the same length. A chain that an earlier translation has left
// beside its like of this release is the same one then: the newer stays, if it has got its rules.
func translated(objects []dataplane.Object) []dataplane.Object {
	out := make([]dataplane.Object, 0, len(objects))
	at := map[dataplane.ID]int{}
	for _, o := range objects {
		was := o.ID
		switch o.ID.Container {
		case "chain":
			o.ID.Name, o.Body = renamedChain(o.ID.Name), rename(o.Body)
		case "@" + nftrender.SetName("frontends"), "@" + nftrender.SetName("nodeports"):
			o.Body = rename(o.Body)
		}
		var refs []dataplane.ID
		for _, ref := range o.Refs() {
			if ref.Container == "chain" {
				ref.Name = renamedChain(ref.Name)
			}
			refs = append(refs, ref)
		}
		o.Links = dataplane.LinkTo(refs...)
		if i, twice := at[o.ID]; !twice {
			at[o.ID] = len(out)
			out = append(out, o)
		} else if _, list := rules.Parts([]byte(o.Body)); was != o.ID && len(list) > 0 {
			out[i] = o
		}
	}
	return out
}

// toOtherRelease rewrites the family's table as another release would have written it.
// Packets end as before.
func (s *stack) toOtherRelease() error {
	g := s.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = nil
	if len(s.ours(isTable)) == 0 {
		return nil
	}
	writer := nftkernel.NewWriter(s.family, nftkernel.WriterConfig{Open: s.kernel.Open})
	objects, err := writer.Read(context.Background())
	if err != nil {
		return err
	}
	if err := s.commit(nftrender.TableName, message{kind: unix.NFT_MSG_DELTABLE}); err != nil {
		return err
	}
	batch := &dataplane.Batch{}
	for _, o := range translated(objects) {
		if o.ID.Container == "set" && o.Body == "" {
			continue // a stray one, which does not say how it is defined
		}
		batch.Changes = append(batch.Changes, dataplane.Change{ID: o.ID, After: &o})
	}
	writer = nftkernel.NewWriter(s.family, nftkernel.WriterConfig{Open: s.kernel.Open})
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
