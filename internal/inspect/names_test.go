// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/observe/state"
)

func TestParseName(t *testing.T) {
	for _, c := range []struct {
		namespace, text, want string
		fails                 bool
	}{
		{text: "web", want: "web"}, {namespace: "shop", text: "web", want: "shop/web"}, {text: "shop/web", want: "shop/web"},
		{text: "svc/web", want: "web"}, {text: "ep/web", want: "web"}, {text: "pod/web", want: "pod/web"}, {namespace: "svc", text: "web", want: "svc/web"}, {text: "service/shop/web", want: "shop/web"},
		{namespace: "shop", text: "svc/web", want: "shop/web"}, {namespace: "shop", text: "shop/web", want: "shop/web"},
		{namespace: "other", text: "shop/web", fails: true}, {text: "", fails: true}, {text: "shop/", fails: true}, {text: "a/b/c", fails: true},
	} {
		got, err := ParseName(c.namespace, c.text, ServiceKinds)
		if (err != nil) != c.fails || err == nil && got.String() != c.want {
			t.Errorf("-n %q %q: %v, %v, want %s", c.namespace, c.text, got, err, c.want)
		}
	}
}

func TestParseDestination(t *testing.T) {
	ports := []Frontend{
		{Kind: "NodePort", Port: 30053, Protocol: "UDP"}, {Kind: "ClusterIP", Address: "fd00::9", Port: 53, PortName: "dns", Protocol: "UDP"},
		{Kind: "ClusterIP", Address: "10.0.0.9", Port: 53, PortName: "dns", Protocol: "UDP"},
		{Kind: "ClusterIP", Address: "10.0.0.9", Port: 53, PortName: "dns-tcp", Protocol: "TCP"},
	}
	for text, want := range map[string]string{
		"10.0.0.1:80/tcp": "10.0.0.1", "[fd00::1]:80": "fd00::1", "10.0.0.1": "10.0.0.1",
		"a/dns:dns": "a/dns 10.0.0.9:53/UDP", "svc/dns:53/tcp": "dns 10.0.0.9:53/TCP", "ep/dns.a:dns-tcp": "a/dns 10.0.0.9:53/TCP",
		"dns.a.svc.cluster.local:53/udp": "a/dns 10.0.0.9:53/UDP", "dns:53": `dns "dns:53": must end in one of the ports :dns (53/UDP), :dns-tcp (53/TCP)`,
		"10.0.0:80": `"10.0.0:80": must be an address and port, `, "a/b/c:80": `"a/b/c:80": must be `, "": `"": must be `,
	} {
		got := ""
		to, err := ParseDestination(text)
		switch {
		case err != nil:
			got = err.Error()
		case to.Addr.IsValid():
			got = to.Addr.String()
		default:
			at, err := to.Frontend(ports, true)
			got = to.Service.String() + " " + at
			if err != nil {
				got += err.Error()
			}
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestServiceList_Select(t *testing.T) {
	for _, c := range []struct{ fields, state, want string }{
		{"", "", "abc"}, {"", "held", "b"}, {"state=applied", "", "ac"}, {"state!=applied,metadata.namespace=n", "", "b"},
		{"metadata.name=c", "applied", "c"}, {"metadata.name=c", "pending", ""}, {"labels=x", "", "field-selector"}, {"a=b=c,,", "", "field-selector"},
		{"", "parked", "state"},
	} {
		l := someServices()
		got := ""
		if err := l.Select(c.fields, c.state); err != nil {
			got, _, _ = strings.Cut(err.Error(), " ")
		} else {
			for _, s := range l.Items {
				got += s.Name
			}
		}
		if got != c.want {
			t.Errorf("--field-selector %q --state %q: %s, want %s", c.fields, c.state, got, c.want)
		}
	}
	if len(colors) != 4 || colors[string(state.Failing.Class())] == "" {
		t.Error("a state without a color is no value of --state")
	}
}

func TestServiceList_Keep(t *testing.T) {
	l := someServices()
	missing := l.Keep([]ServiceName{{Namespace: "n", Name: "c"}, {Namespace: "n", Name: "z"}})
	if len(missing) != 1 || missing[0].String() != "n/z" || len(l.Items) != 1 || l.Items[0].Name != "c" {
		t.Errorf("%v, missing %v", l.Items, missing)
	}
	if found := (&Names{Services: []string{"a/web", "b/web", "b/cobweb"}}).Find("web"); len(found) != 2 {
		t.Errorf("found %v", found)
	}
}
