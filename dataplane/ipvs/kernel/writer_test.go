// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/service"
)

// TestWriter_WorkPerChange: a change of one endpoint takes one request and no listing, for any number of Services.
func TestWriter_WorkPerChange(t *testing.T) {
	var written []dataplane.Written
	for _, services := range []int{1, 200} {
		s, k := newFakeStand(t, service.IPv4, Config{})
		all := []owned{s.scaffold()}
		for i := range services {
			all = append(all, s.serviceOf(fmt.Sprint(i), s.clusterIP(i, 2)))
		}
		s.want(all...)
		all[1] = s.serviceOf("0", s.clusterIP(0, 1))
		changes := s.changes(all...)
		k.log, k.listed = nil, 0
		written = append(written, s.write(changes).Written)
		if len(k.log) != 1 || k.listed != 0 {
			t.Errorf("%d lists, and\n%s", k.listed, strings.Join(k.log, "\n"))
		}
	}
	if written[0] != written[1] || written[0].Calls != 1 {
		t.Errorf("work grows with the number of Services: %+v", written)
	}
}

// fails returns an error for the lines of the log that contain a text.
func fails(text string, err error) func(string) error {
	return func(line string) error {
		if strings.Contains(line, text) {
			return err
		}
		return nil
	}
}

func TestWriter_Outcomes(t *testing.T) {
	for _, c := range []struct {
		about string
		err   error
		want  dataplane.Outcome
	}{
		{"add real server", wire.ErrUnanswered, dataplane.Unknown},
		{"add real server", &wire.NotSentError{Err: unix.ENOBUFS}, dataplane.Busy},
		{"add virtual server", &wire.Rejection{Errno: unix.ENOMEM}, dataplane.Busy},
		{"add virtual server", &wire.Rejection{Errno: unix.EINVAL}, dataplane.Rejected},
		{"in KUBE-CLUSTER-IP", wire.ErrUnanswered, dataplane.Unknown},
		{"in KUBE-CLUSTER-IP", &wire.SetRejection{Reason: wire.ErrFull}, dataplane.Rejected},
		{"bind", wire.ErrUnanswered, dataplane.Unknown},
		{"bind", unix.EINVAL, dataplane.Rejected},
	} {
		s, k := newFakeStand(t, service.IPv4, Config{})
		s.want(s.scaffold())
		k.fault = fails(c.about, c.err)
		a := s.serviceOf("a", s.clusterIP(1, 1))
		receipt := s.write(s.changes(s.scaffold(), a))
		if receipt.Outcome != c.want || !slices.Equal(receipt.Suspects, []service.Key{a.owner}) {
			t.Errorf("%s: %v: %v, want %v; suspects %v", c.about, c.err, receipt.Outcome, c.want, receipt.Suspects)
		}
		k.fault = nil
		if c.want == dataplane.Unknown {
			s.read()
		}
		s.want(s.scaffold(), a)
	}
}

// TestWriter_LostAnswerEndsConnection: after a lost answer, the writer opens a new socket. A late answer on the old one
// would be taken for that to another request.
func TestWriter_LostAnswerEndsConnection(t *testing.T) {
	s, k := newFakeStand(t, service.IPv4, Config{})
	k.fault = fails("create", wire.ErrUnanswered)
	receipt := s.write(s.changes(s.scaffold()))
	if receipt.Outcome != dataplane.Unknown || len(receipt.Suspects) > 0 {
		t.Errorf("%v, suspects %v", receipt, receipt.Suspects)
	}
	if _, known := receipt.Certain[render.SetID(render.SetName(s.Family, "CLUSTER-IP"))]; known {
		t.Error("the set is said to be certain")
	}
	k.fault = nil
	s.read()
	s.want(s.scaffold())
	if k.opened != 2 {
		t.Errorf("%d connections, want 2", k.opened)
	}
}

// TestWriter_SkipsReferrersOfRejected: a write skips objects that refer to a rejected one, and writes all others.
func TestWriter_SkipsReferrersOfRejected(t *testing.T) {
	s, k := newFakeStand(t, service.IPv4, Config{})
	rejected := "create " + render.SetName(s.Family, render.SetLoadBalancerFW)
	k.fault = fails(rejected, &wire.SetRejection{What: "create", Reason: wire.ErrUnsupported})
	all := []owned{s.scaffold(), s.serviceOf("a", s.clusterIP(1, 1))}
	receipt := s.write(s.changes(all...))
	if receipt.Outcome != dataplane.Unsupported {
		t.Error(receipt)
	}
	// The chain that asks the set, and the hooks that lead to it.
	for _, text := range []string{"rule filter KUBE-PROXY-FIREWALL", "rule filter/INPUT 06"} {
		if lines := k.about(text); len(lines) > 0 {
			t.Errorf("tried: %q", lines)
		}
	}
	for _, text := range []string{"rule nat KUBE-SERVICES", "add virtual server", "bind"} {
		if len(k.about(text)) == 0 {
			t.Errorf("not tried: %s", text)
		}
	}
	k.fault = nil
	s.want(all...)
}

// TestWriter_ReportsRejectedRules: the receipt contains the error of rejected rules, and the servers are written.
func TestWriter_ReportsRejectedRules(t *testing.T) {
	s, k := newFakeStand(t, service.IPv4, Config{})
	k.fault = fails("rule nat KUBE-SERVICES", errors.New("no such match"))
	all := []owned{s.scaffold(), s.serviceOf("a", s.clusterIP(1, 1))}
	receipt := s.write(s.changes(all...))
	if receipt.Outcome != dataplane.Rejected || !strings.Contains(receipt.Err.Error(), "no such match") || len(k.servers) != 1 {
		t.Errorf("%v; %d servers", receipt, len(k.servers))
	}
	k.fault = nil
	s.want(all...)
}

// TestWriter_ReportsWrongDeviceType: a device of another type under our name is reported as a rejection, and gets no
// addresses.
func TestWriter_ReportsWrongDeviceType(t *testing.T) {
	s, k := newFakeStand(t, service.IPv4, Config{})
	k.wrong = true
	s.read()
	receipt := s.write(s.changes(s.scaffold(), s.serviceOf("a", s.clusterIP(1, 1))))
	if receipt.Outcome != dataplane.Rejected || !strings.Contains(receipt.Err.Error(), "veth") || len(k.about("bind")) > 0 {
		t.Error(receipt)
	}
}

// TestWriter_CancelledWrite: the receipt of a cancelled write lists what was not written as certain, and a write whose
// context has ended sends nothing.
func TestWriter_CancelledWrite(t *testing.T) {
	s, k := newFakeStand(t, service.IPv4, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	k.fault = func(line string) error {
		if strings.HasPrefix(line, "bind") {
			cancel()
		}
		return nil
	}
	changes := s.changes(s.scaffold(), s.serviceOf("a", s.clusterIP(1, 1)))
	receipt := s.w.Write(ctx, &dataplane.Batch{Changes: changes})
	_, id := s.server(s.clusterIP(1, 1))
	if found, known := receipt.Certain[id]; receipt.Outcome != dataplane.Unknown || !known || found != nil {
		t.Errorf("%v; the server is %v, %t", receipt, found, known)
	}
	k.log = nil
	if receipt = s.w.Write(ctx, &dataplane.Batch{Changes: changes}); receipt.Outcome != dataplane.Unknown || len(k.log) > 0 ||
		len(receipt.Certain) != len(changes) {
		t.Errorf("a write that was not to begin: %v, %q", receipt, k.log)
	}
}

// TestWriter_RejectsForeignIdentities: a write rejects identities that are none of our objects, and their owner is a
// suspect.
func TestWriter_RejectsForeignIdentities(t *testing.T) {
	s, _ := newFakeStand(t, service.IPv4, Config{})
	for _, o := range []dataplane.Object{
		{ID: dataplane.ID{Container: render.ContainerAddress, Name: "x"}},
		{ID: dataplane.ID{Container: render.ContainerSet, Name: "x"}, Body: "list:set"},
		{ID: dataplane.ID{Container: render.ContainerServer, Name: "x"}},
		{ID: render.ServerID(service.Frontend{Addr: s.VIP, Port: 80}), Body: "rr"},
		{ID: dataplane.ID{Container: "set/x", Name: "80"}},
		{ID: dataplane.ID{Container: "set/" + render.SetName(service.IPv4, "CLUSTER-IP"), Name: "x"}},
	} {
		receipt := s.write([]dataplane.Change{{ID: o.ID, After: &o, Owner: service.Key{Name: "a"}}})
		if receipt.Outcome != dataplane.Rejected || len(receipt.Suspects) != 1 {
			t.Errorf("%v: %v", o.ID, receipt)
		}
	}
}

// TestWriter_CorrectsForeignForwarding: a write corrects a real server whose forwarding method another program changed.
func TestWriter_CorrectsForeignForwarding(t *testing.T) {
	s, k := newFakeStand(t, service.IPv4, Config{})
	all := []owned{s.scaffold(), s.serviceOf("a", s.clusterIP(1, 1))}
	s.want(all...)
	for _, server := range k.servers {
		for addr, d := range server.reals {
			d.Forwarding = 3
			server.reals[addr] = d
		}
	}
	s.read()
	if n := len(s.changes(all...)); n != 1 {
		t.Errorf("%d differences, want 1", n)
	}
	s.want(all...)
}

// TestWriter_ReportsNearlyFullSets: the writer reports a set that is nearly full, after writes and after a reading.
func TestWriter_ReportsNearlyFullSets(t *testing.T) {
	var told []SetLevel
	s, k := newFakeStand(t, service.IPv4, Config{NearlyFull: func(l SetLevel) { told = append(told, l) }})
	all := []owned{s.scaffold(), s.serviceOf("0", s.clusterIP(0, 1))}
	s.want(all...)
	name := render.SetName(s.Family, "CLUSTER-IP")
	small := k.sets[name]
	small.MaxElem = 10
	s.w.levels.made(small.SetSpec, 1)
	for i := 1; i < 9; i++ {
		all = append(all, s.serviceOf(fmt.Sprint(i), s.clusterIP(i, 1)))
		s.write(s.changes(all...))
	}
	if want := []SetLevel{{Set: name, Entries: 8, Capacity: 10}}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
	s.read()
	if want := (SetLevel{Set: name, Entries: 9, Capacity: 10}); len(told) != 2 || told[1] != want {
		t.Errorf("told %v, want %v again", told, want)
	}
	s.write(s.changes(all[:3]...))
	if got := s.w.levels.sets[name]; got.Entries != 2 {
		t.Errorf("%+v, want 2 entries", got)
	}
}

// rename gives a set of the fake and the rules that look it up another name.
func (k *fakeKernel) rename(from, to string) {
	k.sets[to] = k.sets[from]
	k.sets[to].Name = to
	delete(k.sets, from)
	for id, o := range k.rules {
		renamed := *o
		renamed.Body = strings.ReplaceAll(o.Body, from+" ", to+" ")
		refs := slices.Clone(o.Refs())
		for i := range refs {
			if refs[i] == render.SetID(from) {
				refs[i] = render.SetID(to)
			}
		}
		renamed.Links = dataplane.LinkTo(refs...)
		k.rules[id] = &renamed
	}
}

// TestWriter_RulesAlwaysAskWholeSets: while the sets of another release or of kube-proxy are replaced, every rule finds
// a set with the entries of all served Services and without stale ones.
func TestWriter_RulesAlwaysAskWholeSets(t *testing.T) {
	for _, family := range service.Families {
		for _, other := range []string{setPrefixes[family] + "CLUSTER-IP-012def", setPrefixes[family] + "CLUSTER-IP"} {
			s, k := newFakeStand(t, family, Config{})
			name := render.SetName(family, "CLUSTER-IP")
			all := []owned{s.scaffold(), s.serviceOf("a", s.clusterIP(1, 1)), s.serviceOf("b", s.clusterIP(2, 1))}
			s.want(all...)
			k.rename(name, other)
			stale := &fakeSet{SetSpec: s.w.sets[name], entries: map[wire.Entry]bool{{Addr: s.External, Protocol: wire.TCP, Port: 9}: true}}
			k.sets[name] = stale
			s.read()
			asked := 0
			k.fault = func(string) error {
				for _, o := range k.rules {
					for _, ref := range o.Refs() {
						if ref != render.SetID(name) && ref != render.SetID(other) {
							continue
						}
						asked++
						if there := k.sets[ref.Name]; there == nil || len(there.entries) != 2 {
							t.Errorf("%s looks up %s: %+v", o.ID.Name, ref.Name, there)
						}
					}
				}
				return nil
			}
			if receipt := s.write(s.changes(all...)); receipt.Outcome != dataplane.Landed || asked == 0 || k.sets[other] != nil {
				t.Errorf("%v, looked up %d times, left %+v:\n%s", receipt, asked, k.sets[other], strings.Join(k.log, "\n"))
			}
			k.fault = nil
			s.expect(all...)
		}
	}
}

// TestWatch_RulesAndDevice: Watch reports changes to the rules and to the device, and returns the error of either.
func TestWatch_RulesAndDevice(t *testing.T) {
	for _, fail := range []error{nil, errors.New("no more")} {
		k := newFakeKernel()
		rules := fakeRules{k}.contract()
		rules.Watch = func(ctx context.Context, changed func(dataplane.ForeignProcess)) error {
			if changed(dataplane.ForeignProcess{}); fail != nil {
				return fail
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}
		w := newWriter(service.IPv4, Config{Rules: rules}, fakeDevice{k}, k.open)
		ctx, cancel := context.WithCancel(t.Context())
		told, ended := make(chan struct{}, 2), make(chan error)
		go func() { ended <- w.Watch(ctx, func(dataplane.ForeignProcess) { told <- struct{}{} }) }()
		(<-k.announced)()
		<-told
		<-told
		want := fail
		if fail == nil {
			cancel()
			want = context.Canceled
		}
		if err := <-ended; !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
		cancel()
	}
}
