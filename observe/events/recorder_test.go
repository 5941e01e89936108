// SPDX-License-Identifier: Apache-2.0

package events

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/rest"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/supervisor"
	"github.com/sluice-proxy/sluice/test/testenv"
)

var (
	_   observe.Listener = (*Recorder)(nil)
	web                  = service.Key{Namespace: "ns", Name: "web"}
)

// api is a server that accepts events over HTTP, and passes them on to created.
func api(t *testing.T) (client *rest.Config, created chan eventsv1.Event) {
	created = make(chan eventsv1.Event, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var event eventsv1.Event
		if err == nil {
			err = json.Unmarshal(body, &event)
		}
		if err != nil || r.Method != http.MethodPost || r.URL.Path != "/apis/events.k8s.io/v1/namespaces/"+event.Namespace+"/events" {
			http.Error(w, "what is this?", http.StatusBadRequest)
			t.Errorf("%s %s: %v: %s", r.Method, r.URL, err, body)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body)
		created <- event
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, created
}

// running returns a recorder that runs, and what it has sent.
func running(t *testing.T) (*Recorder, chan eventsv1.Event) {
	client, created := api(t)
	r, err := New(t.Context(), Config{Client: client, Node: "node-1"})
	if err != nil {
		t.Fatal(err)
	}
	return r, created
}

func await(t *testing.T, created chan eventsv1.Event) eventsv1.Event {
	t.Helper()
	select {
	case e := <-created:
		return e
	case <-time.After(testenv.Patience):
		t.Fatal("no event came")
		return eventsv1.Event{}
	}
}

func TestRecorder_Events(t *testing.T) {
	r, created := running(t)
	failure := errors.New("address already in use")
	until := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		record                             func()
		regarding, kind, reason, do, about string
	}{
		{r.Starting, "Node /node-1", "Normal", "Starting", "StartKubeProxy", ""},
		{func() { r.DefaultMode("nftables") }, "Node /node-1", "Warning", "KubeProxyDefaultMode", "StartKubeProxy", "mode not set; using nftables"},
		{r.IPVS, "Node /node-1", "Warning", "IPVSDeprecation", "StartKubeProxy",
			"kube-proxy disables IPVS mode by default in v1.40 and removes it in v1.43; consider nftables mode"},
		{func() { r.Reloaded("mode, clusterCIDR") }, "Node /node-1", "Normal", "Reloaded", "Configure", "mode, clusterCIDR"},
		{func() { r.HealthcheckFailed(failure) }, "Node /node-1", "Warning", "FailedToStartProxierHealthcheck", "StartKubeProxy", "already in use"},
		{func() { r.MetricsFailed(failure) }, "Node /node-1", "Warning", "FailedToStartMetricServer", "StartKubeProxy", "already in use"},
		{func() { r.HealthPortFailed(web, failure) }, "Service ns/web", "Warning", "FailedToStartServiceHealthcheck", "Listen", "already in use"},
		{func() { r.AddressTaken("held by pid 7") }, "Node /node-1", "Warning", "AddressTaken", "Listen", "held by pid 7"},
		{func() {
			r.Warn(service.Warning{Object: "Service ns/web", Field: "spec.externalIPs[1]", Problem: "no address"}) // for the log alone
			r.Warn(service.Warning{Object: "Service ns/web", Field: "metadata.annotations[x]", Problem: "frob is none of rr, sh"})
		}, "Service ns/web", "Warning", "AnnotationIgnored", "Program", "metadata.annotations[x]: frob is none of rr, sh"},
		{func() { r.ConfigurationRejected(failure) }, "Node /node-1", "Warning", "ConfigurationRejected", "Configure", "keeping the previous one"},
		{func() { r.Aggregator(aggregator.Quarantined{Domain: "nftables/IPv4", Key: web, Reason: "file exists"}) },
			"Service ns/web", "Warning", "ServiceQuarantined", "Program", "rules rejected by nftables/IPv4; keeping the previous rules: file exists"},
		{func() { r.Aggregator(aggregator.Freed{Domain: "nftables/IPv4", Key: web}) }, "Service ns/web", "Normal", "ServiceAccepted", "Program", "accepted"},
		{func() { r.Aggregator(aggregator.NodeAtFault{Domain: "nftables/IPv4", Reason: "no such file"}) }, "Node /node-1", "Warning", "RulesRejected", "Program", "no such file"},
		{func() {
			r.Aggregator(aggregator.RepairBegan{Domain: "nftables/IPv4", Undone: ledger.Undone{Missing: 3, Services: 2},
				Examples: []string{"missing: chain services"}, By: dataplane.ForeignProcess{PID: 7, Command: "nft"}})
		}, "Node /node-1", "Warning", "RulesChanged", "Program", "nftables/IPv4: restoring rules of 2 Services: changed by nft (process 7): " +
			"3 objects missing, 0 different, 0 unwanted (missing: chain services)"},
		{func() {
			r.Supervisor(supervisor.Event[service.Key]{Child: web, What: supervisor.Parked{Until: until, Err: failure}})
		}, "Service ns/web", "Warning", "ActorParked", "Program", "actor parked until " + until.UTC().Format(time.RFC3339) + "; keeping the previous rules"},
		{func() {
			r.Supervisor(supervisor.Event[service.Key]{Child: service.Node, What: supervisor.Parked{Until: until, Err: failure}})
		}, "Node /node-1", "Warning", "ActorParked", "Program", "actor of node-wide rules parked"},
		{func() { r.Actors(actors.TooLarge{Key: web, Excess: service.Excess{Objects: 7, Max: 5, LeftOut: 2}}) }, "Service ns/web", "Warning", "ServiceTooLarge", "Program", "over IPv4: 7 objects, limit 5; frontends left out: 2"},
	} {
		c.record()
		e := await(t, created)
		regarding := e.Regarding.Kind + " " + e.Regarding.Namespace + "/" + e.Regarding.Name
		action, _, hashed := strings.Cut(e.Action, "-")
		if regarding != c.regarding || e.Type != c.kind || e.Reason != c.reason || action != c.do || hashed == (c.do == "StartKubeProxy") ||
			!strings.Contains(e.Note, c.about) || e.ReportingController != "kube-proxy" {
			t.Errorf("want %+v, got regarding %s: %+v", c, regarding, e)
		}
	}
}

// TestRecorder_TruncatesLongNotes: long notes are cut, but not within a character.
func TestRecorder_TruncatesLongNotes(t *testing.T) {
	r, created := running(t)
	r.ConfigurationRejected(errors.New(strings.Repeat("x", 5000)))
	if e := await(t, created); len(e.Note) != noteMax || !strings.HasSuffix(e.Note, service.Ellipsis) {
		t.Errorf("%d bytes", len(e.Note))
	}
	for shift := range 3 {
		r.AddressTaken(strings.Repeat("x", shift) + strings.Repeat("日", 1000))
		if e := await(t, created); len(e.Note) > noteMax || !utf8.ValidString(e.Note) || strings.ContainsRune(e.Note, utf8.RuneError) {
			t.Errorf("a character of the note is cut: %d bytes, %q", len(e.Note), e.Note[noteMax-20:])
		}
	}
}

// TestRecorder_WithoutClient: a recorder without a client ignores events.
func TestRecorder_WithoutClient(t *testing.T) {
	r, err := New(t.Context(), Config{Node: "node-1"})
	if err != nil {
		t.Fatal(err)
	}
	r.Starting()
	r.Aggregator(aggregator.Freed{Key: web})
}

// TestMemory_Bounded: the memory works without a client, and drops the oldest events.
func TestMemory_Bounded(t *testing.T) {
	memory := &Memory{}
	r, err := New(t.Context(), Config{Node: "node-1", Memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	r.Starting()
	for range memoryMax {
		r.EndpointSuspect(web, "10.0.0.1:80")
	}
	all, omitted := memory.Events()
	if len(all) != memoryMax || omitted != 1 || all[0].Namespace != web.Namespace || all[0].Object != web.Name || all[0].Reason != reasonSuspect || all[0].Type != "Warning" {
		t.Errorf("%d events, %d omitted, the first %+v", len(all), omitted, all[0])
	}
}

// TestRecorder_ShadowedNamesBothServices: the event is on the shadowed Service, and names the one that owns the
// addresses if both are in one namespace. The end of the conflict causes no event.
func TestRecorder_ShadowedNamesBothServices(t *testing.T) {
	r, created := running(t)
	owner := service.Key{Namespace: "ns", Name: "owner"}
	shadowed := source.Shadowed{
		Key: web, By: owner,
		Frontends: service.Frontends{{Addr: netip.MustParseAddr("192.0.2.1"), Port: 80}, {Port: 30080, Protocol: service.UDP}},
	}
	r.Source(shadowed)
	e := await(t, created)
	const want = " owns 192.0.2.1:80/tcp, node port 30080/udp"
	if e.Reason != "ServiceShadowed" || e.Type != "Warning" || e.Note != "address conflict: Service ns/owner"+want {
		t.Errorf("%s %s: %s", e.Type, e.Reason, e.Note)
	}
	if e.Namespace != "ns" || e.Regarding.Kind != "Service" || e.Regarding.Name != "web" {
		t.Errorf("in %s, about %v", e.Namespace, e.Regarding)
	}
	if e.Related == nil || e.Related.Kind != "Service" || e.Related.Namespace != "ns" || e.Related.Name != "owner" {
		t.Errorf("related to %v", e.Related)
	}
	over, another := shadowed, shadowed
	over.Over = true
	r.Source(over)
	another.By = service.Key{Namespace: "victim", Name: "payments"}
	r.Source(another)
	// Whoever claims an address of another tenant does not learn whose it is.
	e = await(t, created)
	if e.Note != "address conflict: another Service"+want || e.Related != nil {
		t.Errorf("the end of a shadow made an event, or this one tells who has the address: related to %v: %s", e.Related, e.Note)
	}
}

// TestRecorder_IncidentsAreSeparateEvents: a second incident has its own event, because a series would show the note of
// the first one.
func TestRecorder_IncidentsAreSeparateEvents(t *testing.T) {
	r, created := running(t)
	flushed := aggregator.RepairBegan{Domain: "nftables/IPv6", Undone: ledger.Undone{Missing: 2}}
	r.Aggregator(flushed)
	first := await(t, created)
	flushed.Domain, flushed.Undone.Services = "nftables/IPv4", 10002
	r.Aggregator(flushed)
	second := await(t, created)
	if first.Note == second.Note || !strings.Contains(second.Note, "10002 Services") || second.Series != nil {
		t.Errorf("after the event %q came %q of the series %v", first.Note, second.Note, second.Series)
	}
	if len(second.Action) > 128 {
		t.Errorf("action %q has %d bytes; the API allows 128", second.Action, len(second.Action))
	}
}
