// SPDX-License-Identifier: Apache-2.0

// Package trace describes the paths of traced packets, and compares them with the answer of package explain.
package trace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	nfttrace "github.com/sluice-proxy/sluice/dataplane/nftables/trace"
	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/service"
)

// Answer is the result of a trace.
type Answer struct {
	From     string `json:"from"`
	To       string `json:"to"`
	Protocol string `json:"protocol"`
	// Duration is the time for which packets were selected, such as 5s.
	Duration string `json:"duration"`
	// Incomplete is set if packets are missing, or steps of packets. Notes contain the reason.
	Incomplete bool     `json:"incomplete"`
	Notes      []string `json:"notes,omitempty"`
	Explain    Compared `json:"explain"`
	// Paths are the different paths of packets, in the order of their first packets.
	Paths []Path `json:"paths"`
}

// Compared is the comparison with explain.
type Compared struct {
	// Verdict is that of explain. It is empty if there is no comparison, for the reason in Error or because no packet
	// arrived.
	Verdict     explain.Verdict `json:"verdict,omitempty"`
	Error       string          `json:"error,omitempty"`
	Differences []string        `json:"differences,omitempty"`
}

// explainTime bounds the query to the proxy.
const explainTime = 10 * time.Second

// Run traces a flow until the context ends, in the network namespace of the calling thread. It calls ready when
// the trace begins, and then ask for the answer of explain. It needs CAP_NET_ADMIN.
func Run(ctx context.Context, q explain.Flow, ask func(context.Context, explain.Flow) (*explain.Answer, error), ready func()) (*Answer, error) {
	legacy := iptkernel.LegacyTables(service.FamilyOf(q.To.Addr()))
	flow := nfttrace.Flow{From: q.From, To: q.To, Protocol: q.Protocol, Tracked: slices.Contains(legacy, "nat")}
	record, err := nfttrace.Run(ctx, flow, ready)
	if err != nil {
		return nil, err
	}
	a := &Answer{
		From: q.From.Addr().String(), To: q.To.String(), Protocol: q.Protocol.String(),
		Duration: record.Duration.Round(100 * time.Millisecond).String(), Incomplete: record.Lost || record.Full, Paths: pathsOf(record.Packets),
	}
	if q.From.Port() != 0 {
		a.From = q.From.String()
	}
	nameCulprits(context.WithoutCancel(ctx), a.Paths, listChain)
	a.notes(record, legacy)
	if len(a.Paths) > 0 {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), explainTime)
		defer stop()
		a.Explain = compare(ctx, a.Paths, q, ask)
	}
	return a, nil
}

func (a *Answer) notes(record *nfttrace.Record, legacy []string) {
	note := func(format string, args ...any) { a.Notes = append(a.Notes, fmt.Sprintf(format, args...)) }
	if record.Lost {
		note("the kernel lost messages: packets or steps are missing")
	}
	if record.Full {
		note("the trace ended early, at its limit of packets or messages")
	}
	if !record.Replies {
		note("replies were not traced: no chain of type nat exists, so connections may not be tracked")
	}
	if len(legacy) > 0 {
		note("rules of iptables-legacy (%s) are not shown, only their effects", strings.Join(legacy, ", "))
	}
}
