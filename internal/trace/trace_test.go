// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"context"
	"errors"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	nfttrace "github.com/sluice-proxy/sluice/dataplane/nftables/trace"
	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/internal/terminal"
)

const (
	client, clusterIP, endpoint = "10.0.0.1:1000", "172.30.0.1:80", "10.0.0.9:8080"
	firewall                    = "inet firewalld"
)

// packet is one that left the node, unless it has steps that end it.
func packet(from, to, lastFrom, lastTo string, steps ...nfttrace.Step) nfttrace.Packet {
	at := netip.MustParseAddrPort
	return nfttrace.Packet{
		First: nfttrace.Header{From: at(from), To: at(to)}, Last: nfttrace.Header{From: at(lastFrom), To: at(lastTo)},
		In: "veth0", Out: "eth0", New: true, Steps: steps, Hook: "postrouting", Passed: true,
	}
}

func dropped() nfttrace.Step {
	return nfttrace.Step{Hook: "forward", Table: firewall, Chain: "filter_FORWARD", Verdict: "drop", Policy: true}
}

func outcome(v explain.Verdict, to string, masqueraded bool) explain.Outcome {
	return explain.Outcome{Verdict: v, To: to, Masqueraded: masqueraded}
}

// TestCompare compares one packet with predictions. An empty pattern means no difference.
func TestCompare(t *testing.T) {
	sent := packet(client, clusterIP, client, endpoint)
	older := sent
	older.New = false
	reply := packet(endpoint, client, clusterIP, client, dropped())
	reply.Reply = true
	behindLoopback := packet(client, endpoint, client, endpoint)
	lost := packet(client, clusterIP, client, clusterIP)
	lost.Hook, lost.Passed = "forward", false
	to := func(addrs ...string) (all []explain.Outcome) {
		for _, a := range addrs {
			all = append(all, outcome(explain.Delivered, a, false))
		}
		return all
	}
	refused := []explain.Outcome{outcome(explain.Refused, clusterIP, false)}
	for name, c := range map[string]struct {
		packet   nfttrace.Packet
		outcomes []explain.Outcome
		want     string
	}{
		"one of the endpoints":            {sent, to("10.0.0.8:8080", endpoint), ""},
		"another endpoint":                {sent, to("10.0.0.8:8080"), "^explain predicts delivery to 10.0.0.8:8080, but the packet was delivered to 10.0.0.9:8080 through eth0"},
		"an older connection":             {older, to("10.0.0.8:8080"), ""},
		"delivered, not refused":          {sent, refused, "^explain predicts that the connection is refused, but the packet was delivered"},
		"refused out of sight":            {lost, refused, ""},
		"lost, not delivered":             {lost, to(endpoint), "but the packet was lost at hook forward: discarded by something that is not traced"},
		"dropped by a firewall":           {packet(client, clusterIP, client, endpoint, dropped()), to(endpoint), `the packet was dropped by table inet firewalld, chain filter_FORWARD \(policy\): a rule of another program`},
		"dropped by the proxy":            {packet(client, clusterIP, client, clusterIP, nfttrace.Step{Table: "ip kube-proxy", Chain: "c", Verdict: "drop", Rule: 3}), to(endpoint), "chain c, rule 3$"},
		"a dropped reply":                 {reply, to(endpoint), "but the reply was dropped by table inet firewalld"},
		"in again through the loopback":   {behindLoopback, to("10.0.0.8:8080"), ""},
		"masqueraded as predicted":        {packet(client, clusterIP, "192.168.0.2:7", endpoint), []explain.Outcome{outcome(explain.Delivered, endpoint, true)}, ""},
		"masqueraded by another program":  {packet(client, clusterIP, "192.168.0.2:7", endpoint), to(endpoint), "sees the client's address, but the packet left with the source 192.168.0.2$"},
		"not masqueraded":                 {sent, []explain.Outcome{outcome(explain.Delivered, endpoint, true)}, "sees an address of the node, but the packet kept the source 10.0.0.1$"},
		"not handled by the proxy":        {packet(client, clusterIP, client, clusterIP), []explain.Outcome{outcome(explain.Untouched, clusterIP, false)}, ""},
		"translated by another program":   {sent, []explain.Outcome{outcome(explain.Untouched, clusterIP, false)}, "^explain predicts that no rule of the proxy applies, but"},
		"refused by a rule of a firewall": {packet(client, clusterIP, client, clusterIP, nfttrace.Step{Table: firewall, Chain: "c", Verdict: "reject", Rule: 1}), refused, ""},
	} {
		answer := &explain.Answer{Outcomes: c.outcomes, Verdict: c.outcomes[0].Verdict, Origin: explain.FromPod}
		q := explain.Flow{From: netip.MustParseAddrPort(client), To: netip.MustParseAddrPort(clusterIP)}
		got := compare(t.Context(), pathsOf([]nfttrace.Packet{c.packet}), q, func(_ context.Context, q explain.Flow) (*explain.Answer, error) {
			if q.Interface != "veth0" && !c.packet.Reply {
				t.Errorf("%s: asked for interface %q", name, q.Interface)
			}
			return answer, nil
		})
		text := strings.Join(got.Differences, "\n")
		if (c.want == "") != (text == "") || !regexp.MustCompile(c.want).MatchString(text) {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
	}
	failed := compare(t.Context(), pathsOf([]nfttrace.Packet{sent}), explain.Flow{}, func(context.Context, explain.Flow) (*explain.Answer, error) {
		return nil, errors.New("no proxy")
	})
	if failed.Error != "no proxy" || failed.Verdict != "" {
		t.Errorf("without a proxy: %+v", failed)
	}
}

// TestAnswer_Print: packets that differ only in the client's port are printed as one path.
func TestAnswer_Print(t *testing.T) {
	accepted := nfttrace.Step{Hook: "forward", Table: firewall, Chain: "filter_FORWARD", Verdict: "jump a", Rule: 2, Handle: 9, Text: "jump a"}
	second := packet("10.0.0.1:1001", clusterIP, "10.0.0.1:1001", endpoint, accepted, dropped())
	third := packet(client, clusterIP, client, endpoint)
	third.Hook, third.Passed = "prerouting", true
	a := Answer{From: "10.0.0.1", To: clusterIP, Protocol: "tcp", Duration: "5s", Notes: []string{"a note"},
		Paths: pathsOf([]nfttrace.Packet{packet(client, clusterIP, client, endpoint, accepted, dropped()), second, third})}
	a.Explain.Differences = []string{"a difference"}
	var got terminal.Page
	a.Print(&got)
	const want = `10.0.0.1 -> 172.30.0.1:80/tcp, traced for 5s

Packets:  3 from the client, 0 replies
Differs:  a difference
Note:     a note

2 packets from the client, the first one: 10.0.0.1:1000 -> 172.30.0.1:80 through veth0
HOOK     TABLE           CHAIN                  VERDICT  RULE
forward  inet firewalld  filter_FORWARD #2      jump a
                         filter_FORWARD policy  drop
Result: dropped by table inet firewalld, chain filter_FORWARD (policy)

1 packet from the client: 10.0.0.1:1000 -> 172.30.0.1:80 through veth0
HOOK  TABLE  CHAIN  VERDICT  RULE
Result: lost after hook prerouting: the kernel's routing discarded it (no route, or a reverse path filter)
`
	if got.String() != want {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
	got.Reset()
	none := Answer{From: "10.0.0.1", To: clusterIP, Protocol: "tcp", Duration: "5s"}
	if none.Print(&got); !strings.HasSuffix(got.String(), "\n\nResult:  no packet of this flow arrived within 5s\n") {
		t.Errorf("without packets: %q", got.String())
	}
}
