// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	nfttrace "github.com/sluice-proxy/sluice/dataplane/nftables/trace"
	"github.com/sluice-proxy/sluice/internal/explain"
)

// compare asks for the prediction about a flow, and lists the differences of the paths.
func compare(ctx context.Context, paths []Path, q explain.Flow, ask func(context.Context, explain.Flow) (*explain.Answer, error)) Compared {
	if first := &paths[0]; !first.Reply && first.In != "lo" {
		q.Interface = first.In
	}
	predicted, err := ask(ctx, q)
	if err != nil {
		return Compared{Error: err.Error()}
	}
	c := Compared{Verdict: predicted.Verdict}
	for i := range paths {
		path := &paths[i]
		if text := difference(path, predicted, q.To.String()); text != "" && !slices.Contains(c.Differences, text) {
			c.Differences = append(c.Differences, text)
		}
	}
	return c
}

// difference describes how a path differs from the prediction; "" if it does not.
func difference(path *Path, predicted *explain.Answer, to string) string {
	subject := "the packet"
	if path.Reply {
		subject = "the reply"
	}
	said := func(format string, args ...any) string {
		return fmt.Sprintf("explain predicts %s, but %s was %s", prediction(predicted), subject, fmt.Sprintf(format, args...))
	}
	outcome := slices.IndexFunc(predicted.Outcomes, func(o explain.Outcome) bool {
		return sameVerdict(o.Verdict, path.Verdict) && (path.Verdict != explain.Delivered || o.To == path.packet.Last.Destination())
	})
	switch {
	case path.Verdict != explain.Delivered && (outcome < 0 || path.Reply):
		return said("%s%s", path.Conclusion, foreign(path.By))
	case path.Reply || path.To != to: // a reply, or a translated packet on the loopback interface
		return ""
	case outcome < 0 && path.New:
		return said("%s", path.Conclusion)
	case path.Verdict == explain.Delivered && outcome >= 0:
		return sourceDifference(path, predicted, &predicted.Outcomes[outcome])
	}
	return ""
}

// sameVerdict reports whether a packet with a verdict ended as predicted. A packet ends as lost if an untraced rule
// refuses it.
func sameVerdict(predicted, traced explain.Verdict) bool {
	switch traced {
	case explain.Delivered:
		return predicted == explain.Delivered || predicted == explain.Untouched
	case Lost:
		return predicted == explain.Refused || predicted == explain.Dropped
	default:
		return predicted == traced
	}
}

// sourceDifference compares the translation of the source. If the node is the client, packets do not show a translation
// to the node's address.
func sourceDifference(path *Path, predicted *explain.Answer, o *explain.Outcome) string {
	first, last := path.packet.First.From.Addr(), path.packet.Last.From.Addr()
	switch {
	case !path.New || predicted.Origin == explain.FromNode:
		return ""
	case o.Masqueraded && first == last:
		return fmt.Sprintf("explain predicts that the receiver sees an address of the node, but the packet kept the source %s", last)
	case !o.Masqueraded && first != last:
		return fmt.Sprintf("explain predicts that the receiver sees the client's address, but the packet left with the source %s", last)
	}
	return ""
}

// prediction returns the verdict of explain as part of a sentence.
func prediction(a *explain.Answer) string {
	var to []string
	for _, o := range a.Outcomes {
		if o.Verdict == explain.Delivered {
			to = append(to, o.To)
		}
	}
	switch {
	case len(to) == 1:
		return "delivery to " + to[0]
	case len(to) > 1:
		return fmt.Sprintf("delivery to one of %d endpoints", len(to))
	case a.Verdict == explain.Untouched:
		return "that no rule of the proxy applies"
	default:
		return fmt.Sprintf("that the connection is %s", a.Verdict)
	}
}

// foreign returns a text if a rule belongs to another program. Explain does not consider such rules.
func foreign(s *nfttrace.Step) string {
	if s == nil {
		return ""
	}
	_, table, _ := strings.Cut(s.Table, " ")
	if table == render.TableName || strings.HasPrefix(s.Chain, "KUBE-") {
		return ""
	}
	return ": a rule of another program, which explain does not consider"
}
