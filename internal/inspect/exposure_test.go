// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/doctest"
)

// TestExposure_Reference compares the table in docs/security.md with the paths in code.
func TestExposure_Reference(t *testing.T) {
	var rows [][]string
	for _, e := range Exposures {
		path := e.Path
		if e.Kind != "" {
			path = strings.Replace(path, "{kind}", e.Kind, 1)
		}
		rows = append(rows, []string{"`" + path + "`", e.Shows, e.Reach.String()})
	}
	doctest.Generated(t, "../../docs/security.md", "exposures", doctest.Table([]string{"Path", "Shows", "Answered to"}, rows))
}

// TestExposure_EveryPath requests each path of the API, with each kind of list, from another host, with and without
// checks of callers. No answer with addresses of clients is for the whole network.
func TestExposure_EveryPath(t *testing.T) {
	ended := make(chan struct{}) // no stream lasts
	close(ended)
	for _, e := range Exposures {
		kinds := []string{e.Kind}
		if e.Path == PathTop && e.Kind == "" {
			kinds = TopKinds[1:]
		}
		if strings.Contains(e.Shows, "addresses of clients") && e.Reach == Network {
			t.Errorf("%s shows addresses of clients to the whole network", e.Path)
		}
		for _, kind := range kinds {
			path := strings.NewReplacer("{namespace}", "ns0", "{name}", "s00000", "{kind}", kind, "{endpoint}", "10.0.0.1:80").Replace(e.Path)
			for _, authorized := range []bool{false, true} {
				source := &stand{services: 1, hold: ended}
				answer := httptest.NewRecorder()
				Remote("v1", source, authorized).ServeHTTP(answer, httptest.NewRequest("GET", path, nil))
				may := e.Reach == Network || e.Reach == Authorized && authorized
				if refused := answer.Code == http.StatusForbidden || answer.Code == http.StatusNotFound; refused == may {
					t.Errorf("%s, authorized %v: status %d, want an answer: %v", path, authorized, answer.Code, may)
				}
			}
		}
	}
	if _, known := reach("/"+Version+"/new", ""); known {
		t.Error("a path that is not in the table is known")
	}
}

// toAll are the texts of answers that everyone on the network may see, by type and field. A new field is in this list
// only if it contains no address of a client, no command line, and no error of the kernel or of the API server. The
// client of explain.Connection is the one that the question names, and reasons of inspect.Gone are fixed texts.
var toAll = strings.Fields(`
	inspect.Status: Version Compatible Mode ModeReason Node Zone ConfigurationHash Health
	inspect.Feed: From
	inspect.Finding: Services
	inspect.Service: Namespace Name ClusterIPs ExternalIPs LoadBalancerIPs InternalPolicy ExternalPolicy Balancing
	inspect.ServiceDetail: SourceRanges DenySourceRanges NoEndpoints SlowStart Drain Scheduler Digest
	inspect.ServiceDomain: Name State Revision Applied
	inspect.Frontend: Kind Address Protocol PortName Family Policy ServedBy
	inspect.Object: Container Name State
	inspect.Port: Name Protocol
	inspect.TopItem: Namespace Name Endpoint
	inspect.Gone: Endpoint Reason
	inspect.Sender: Service Domain State
	state.OtherChain: Table Name Hook Text
	state.SelfTest: Family
	state.Resource: Name
	state.Domain: Name Family
	state.Quarantine: Namespace Name Revision
	state.Repair: Domain
	state.Finding: Kind About Advice
	state.Record: State
	state.Actor: State TooLarge
	state.Change: Domain Revision Causes Outcome
	explain.Answer: From Interface To Protocol Node Mode Origin Assumed Verdict Source Scheduler Reasons NotEvaluated
	explain.Pending: Service State
	explain.Frontend: Service Port Kind Policy
	explain.Outcome: Verdict To Node
	explain.Step: Hook Table Chain Text Set Element
	explain.Connection: From To Source State
`)

// aMark is a text that names its field.
var aMark = regexp.MustCompile(`mark\(([\w. ]+)\)`)

// fill sets each text of an answer to its mark.
func fill(v reflect.Value, field string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("mark(" + field + ")")
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), field)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), field)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Tag.Get("json") != "-" {
				fill(v.Field(i), v.Type().String()+" "+f.Name)
			}
		}
	}
}

// marks are the fields whose texts are in an answer.
func marks(text string) map[string]bool {
	found := map[string]bool{}
	for _, match := range aMark.FindAllStringSubmatch(text, -1) {
		found[match[1]] = true
	}
	return found
}

// marked is a source whose answers consist of marks. Its texts with several parts contain an error of the kernel.
type marked struct{ stand }

func filled[T any]() (made T) {
	fill(reflect.ValueOf(&made).Elem(), "")
	return made
}

func (m *marked) Status() Status { return filled[Status]() }

func (m *marked) Services(_ context.Context, _ func(service.Key) bool, yield func(*Service) bool) {
	s := filled[Service]()
	yield(&s)
}

func (m *marked) Service(context.Context, service.Key) *ServiceDetail {
	d := filled[ServiceDetail]()
	return &d
}

func (m *marked) Gone(context.Context, GoneQuery) *Gone {
	g := filled[Gone]()
	return &g
}

func (m *marked) Top(context.Context, TopQuery) (*TopList, error) {
	l := filled[TopList]()
	return &l, m.fail
}

func (m *marked) Explain(context.Context, explain.Flow) (*explain.Answer, error) {
	a := filled[explain.Answer]()
	a.Reasons = append(a.Reasons, explain.UnreadAffinity+"mark(error)")
	a.NotEvaluated = append(a.NotEvaluated, explain.UnknownChains+"mark(error)")
	return &a, m.fail
}

// TestExposure_TextsHiddenFromNetwork requests each path of the API for answers in which each text is marked. Every
// host on the network sees only those in toAll; authorized callers and clients on the node see all.
func TestExposure_TextsHiddenFromNetwork(t *testing.T) {
	public, of := map[string]bool{}, ""
	for _, word := range toAll {
		if name, isType := strings.CutSuffix(word, ":"); isType {
			of = name
		} else {
			public[of+" "+word] = true
		}
	}
	ended := make(chan struct{})
	close(ended)
	ask := func(h http.Handler, e *Exposure) map[string]bool {
		path := strings.NewReplacer("{namespace}", "ns0", "{name}", "s00000", "{kind}", cmp.Or(e.Kind, "clients"), "{endpoint}", "10.0.0.1:80").Replace(e.Path)
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequest("GET", path+"?from=10.0.0.1&to=10.96.0.1:80", nil))
		return marks(answer.Body.String())
	}
	unseen := maps.Clone(public)
	for i := range Exposures {
		e := &Exposures[i]
		for _, fail := range []error{nil, errors.New("mark(error)")} {
			source := &marked{stand{services: 1, hold: ended, fail: fail}}
			all, others := ask(Remote("v1", source, true), e), ask(Remote("v1", source, false), e)
			if e.Reach != Local {
				if node := ask(Handler("v1", source), e); !maps.Equal(all, node) {
					t.Errorf("%s: authorized callers see %v, clients on the node %v", e.Path, all, node)
				}
			}
			for mark := range others {
				if delete(unseen, mark); !public[mark] {
					t.Errorf("%s: everyone on the network sees %s", e.Path, mark)
				}
			}
			for mark := range all {
				if e.Reach == Network && public[mark] && !others[mark] {
					t.Errorf("%s: %s is hidden", e.Path, mark)
				}
			}
			if e.Reach == Network && len(all) == 0 {
				t.Errorf("%s: the answer has no marks", e.Path)
			}
		}
	}
	for mark := range unseen {
		t.Errorf("%s is in no answer", mark)
	}
}
