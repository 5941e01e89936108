// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/writertest"
)

// serveVariety renders and wants them all.
func (w *world) serveVariety(f writertest.Fixture) []dataplane.Object {
	objects := w.renderer.Node(&w.facts)
	w.want(service.Node, slices.Clone(objects))
	for i, spec := range f.Variety() {
		slice := f.Slice(f.A, f.B, f.C)
		slice.Service = spec.Key
		view := service.Resolve(spec.Key, &spec, []*service.Slice{slice}, &w.facts)
		if i == 4 {
			view = service.Resolve(spec.Key, &spec, nil, &w.facts)
		}
		rendered := w.renderer.Service(context.Background(), &view, &w.facts)
		objects = append(objects, rendered...)
		w.want(spec.Key, slices.Clone(rendered))
	}
	return distinct(objects)
}

// recording is the configuration of a writer whose transactions are recorded.
func recording(r *kernel.Recorder) kernel.WriterConfig {
	return kernel.WriterConfig{Open: func() (kernel.Socket, error) {
		socket, err := wire.Open()
		r.Socket = socket
		return r, err
	}}
}

// TestTextAndWriter_Agree loads the same objects through the writer and through nft, from their text and from that of
// the writer's transaction, and reads all of them back.
func TestTextAndWriter_Agree(t *testing.T) {
	for _, family := range service.Families {
		f := writertest.NewFixture(family)
		for name, facts := range f.AllFacts() {
			t.Run(family.String()+"/"+name, func(t *testing.T) {
				t.Parallel()
				var r kernel.Recorder
				written := newWorld(t, family, recording(&r))
				written.facts = facts
				objects := written.serveVariety(f)
				written.commit()
				compare(t, written.read(), objects, "what the writer wrote")
				if drift := written.audit(); drift.Any() {
					t.Errorf("after writing, %+v", drift)
				}
				written.loadsAgain("nft", objects, r.Sent...)
				listed := written.nft("", "list", "table", written.table())
				for _, name := range []string{"ns1/svc1:p80", "ns1/local:p80", "ns1/guarded:p80", "ns1/sticky/tcp/p80", "ns1/datagrams:p80"} {
					if !strings.Contains(listed, name) {
						t.Errorf("nothing listed names %s", name)
					}
				}
			})
		}
	}
}

// sortedLines makes listings with elements in any order comparable.
func sortedLines(listing string) string {
	fields := strings.FieldsFunc(listing, func(r rune) bool { return r == '\n' || r == ',' })
	for i := range fields {
		fields[i] = strings.Trim(strings.TrimPrefix(strings.TrimSpace(fields[i]), "elements = {"), " }\t")
	}
	slices.Sort(fields)
	return strings.Join(fields, "\n")
}
