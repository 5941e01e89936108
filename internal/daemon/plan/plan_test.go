// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/internal/terminal"
	"github.com/sluice-proxy/sluice/service"
)

// origin knows owners and references by the body: "ns/name →ID ID".
type origin struct{}

func (origin) Owner(o *dataplane.Object) (service.Key, bool) {
	namespace, name, found := strings.Cut(strings.Fields(o.Body + " -")[0], "/")
	return service.Key{Namespace: namespace, Name: name}, found
}

func (origin) Refs(o *dataplane.Object) (refs []dataplane.ID) {
	_, names, _ := strings.Cut(o.Body, "→")
	for _, name := range strings.Fields(names) {
		refs = append(refs, dataplane.ID{Container: "chain", Name: name})
	}
	return refs
}

func chain(name, body string) *dataplane.Object {
	return &dataplane.Object{ID: dataplane.ID{Container: "chain", Name: name}, Body: body}
}

func change(before, after *dataplane.Object, owner service.Key) dataplane.Change {
	c := dataplane.Change{Before: before, After: after, Owner: owner}
	if after != nil {
		before = after
	}
	c.ID = before.ID
	return c
}

var (
	web = service.Key{Namespace: "a", Name: "web"}
	api = service.Key{Namespace: "a", Name: "api"}
)

// report is of changes of all kinds.
func report() *Report {
	r := &Report{Node: "n1", Mode: "some", Services: 2, Unchanged: 3}
	r.Add(Domain{Name: "some/IPv4", Origin: origin{}, Lines: TextLines,
		LeavesOut: func(c *dataplane.Change) bool { return c.ID.Name == "shared" }},
		[]dataplane.Change{
			change(nil, chain("new", "one\ntwo"), web),
			change(chain("both", "same\nold"), chain("both", "same\nnew"), web),
			change(chain("order", "1\n2"), chain("order", "2\n1"), api),
			change(nil, chain("base", "hook"), service.Node),
			change(chain("gone", "b/gone →led"), nil, service.Node),
			change(chain("led", "of whom? →further"), nil, service.Node),
			change(chain("further", ""), nil, service.Node),
			change(chain("stray", "of whom?"), nil, service.Node),
			change(chain("shared", "not ours"), nil, service.Node),
		})
	return r
}

func TestReport_Print(t *testing.T) {
	text := terminal.Page{Wide: true}
	report().Print(&text)
	const want = `mode some, node n1, 2 Services, some/IPv4

SERVICE       ADDED   CHANGED   REMOVED
a/api         0       1         0
a/web         1       1         0
b/gone        0       0         3
(node-wide)   1       0         0
(unowned)     0       0         1

a/api
  some/IPv4 chain order: changed
    (only the order of its lines)

a/web
  some/IPv4 chain new: added
    + one
    + two
  some/IPv4 chain both: changed
    - old
    + new

b/gone
  some/IPv4 chain gone: removed
    - b/gone →led
  some/IPv4 chain led: removed
    - of whom? →further
  some/IPv4 chain further: removed

(node-wide)
  some/IPv4 chain base: added
    + hook

(unowned)
  some/IPv4 chain stray: removed
    - of whom?

3 Services would change. Objects: 2 to add, 2 to change, 4 to remove; 4 are up to date.
`
	if got := text.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestReport_NothingDiffers(t *testing.T) {
	r := &Report{Node: "n1", Mode: "some", Services: 1, Unchanged: 7}
	r.Add(Domain{Name: "some/IPv4", Lines: TextLines}, nil)
	text := terminal.Page{Wide: true}
	if r.Print(&text); r.Differs() ||
		!strings.HasSuffix(text.String(), "\nNo changes: all 7 objects are up to date.\n") {
		t.Errorf("%q", &text)
	}
	r.Warnings = []service.Warning{{Object: "Service a/web", Field: "spec.externalIPs", Problem: "172.30.0.1 is in 172.30.0.0/16", Effect: "not served"}}
	text.Reset()
	if r.Print(&text); r.Differs() || !strings.Contains(text.String(), `
parts of objects that a start ignores:
  Service a/web: spec.externalIPs: 172.30.0.1 is in 172.30.0.0/16; not served

No changes`) {
		t.Errorf("%q", &text)
	}
	r.Others = []backend.Leftover{{Of: "ipvs", What: "3 sets"}}
	r.Settings = []sysctl.Change{{Name: "net.ipv4.ip_forward", From: "0", To: "1"}, {Name: "net.ipv4.other", From: "0", To: "1", Problem: "permission denied"}}
	text.Reset()
	if r.Print(&text); !r.Differs() || !strings.Contains(text.String(), "\n  ipvs: 3 sets\n") ||
		!strings.Contains(text.String(), "\n  net.ipv4.ip_forward: 0 -> 1\n  net.ipv4.other: 0 -> 1 (this process cannot: permission denied)\n") {
		t.Errorf("%q", &text)
	}
}

// layout composes all chains whose names begin with "KUBE" of lines that are elements.
type layout struct{ dataplane.Layout }

func (layout) Recover(read []*dataplane.Object) (elements, others []*dataplane.Object) {
	for _, o := range read {
		if !strings.HasPrefix(o.ID.Name, "KUBE") {
			others = append(others, o)
			continue
		}
		for line := range strings.SplitSeq(o.Body, "\n") {
			element := dataplane.Object{Kind: dataplane.Element, Body: line}
			element.Links = dataplane.LinkTo(origin{}.Refs(&element)...)
			elements = append(elements, &element)
		}
	}
	return elements, others
}

// TestReport_ComposedObjectLines: the lines of composed objects are listed by Service.
func TestReport_ComposedObjectLines(t *testing.T) {
	composed := chain("KUBE", "a/web 1\na/api 1\nlast")
	composed.Links = &dataplane.Links{Parts: []dataplane.Part{{Owner: web}, {Owner: api}, {Owner: service.Node}}}
	r := &Report{}
	r.Add(Domain{Name: "some/IPv4", Layout: layout{}, Origin: origin{}, Lines: TextLines}, []dataplane.Change{
		change(chain("KUBE", "a/web 0\nb/gone →left\nlast"), composed, service.Node),
		change(chain("left", "of whom?"), nil, service.Node),
		change(chain("KUBE-1", "a/web 2"), nil, service.Node),
	})
	text, err := json.Marshal(r.Groups)
	const want = `[{"kind":"service","service":"a/api","added":1,"changed":0,"removed":0,"objects":[` +
		`{"domain":"some/IPv4","where":"chain KUBE","change":"added","after":["a/api 1"]}]},` +
		`{"kind":"service","service":"a/web","added":0,"changed":1,"removed":1,"objects":[` +
		`{"domain":"some/IPv4","where":"chain KUBE","change":"changed","before":["a/web 0"],"after":["a/web 1"]},` +
		`{"domain":"some/IPv4","where":"chain KUBE-1","change":"removed","before":["a/web 2"]}]},` +
		`{"kind":"service","service":"b/gone","added":0,"changed":0,"removed":2,"objects":[` +
		`{"domain":"some/IPv4","where":"chain KUBE","change":"removed","before":["b/gone →left"]},` +
		`{"domain":"some/IPv4","where":"chain left","change":"removed","before":["of whom?"]}]},` +
		`{"kind":"node","added":0,"changed":0,"removed":1,"objects":[` +
		`{"domain":"some/IPv4","where":"chain KUBE-1","change":"removed"}]}]`
	if err != nil || string(text) != want {
		t.Errorf("%v, got\n%s\nwant\n%s", err, text, want)
	}
}
