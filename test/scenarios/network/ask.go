package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// Ask makes one connection, or sends one datagram, from a socket of its own.
// What is neither an answer nor a refusal nor silence is an error.
func (n *Network) Ask(ctx context.Context, q fixture.Question) (fixture.Answer, error) {
	host, err := n.Host(q.From)
	if err != nil {
		return fixture.Answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, q.Patience)
	defer cancel()
	ask := host.AskFrom
	if q.Protocol == service.SCTP {
		ask = func(ctx context.Context, _ string, source, target netip.AddrPort) (netns.Answer, error) {
			return n.askSCTP(ctx, host, source, target)
		}
	}
	got, err := ask(ctx, q.Protocol.String(), q.Source, q.To)
	switch {
	case err == nil:
		return n.Answer(q, got), nil
	case errors.Is(err, syscall.ECONNREFUSED):
		return fixture.Answer{Fate: fixture.Refused}, nil
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), timedOut(err):
		return fixture.Answer{Fate: fixture.Silent}, nil
	default:
		return fixture.Answer{}, fmt.Errorf("%v: %w", q, err)
	}
}

// Answer says in the words of scenarios what somebody has said to a client.
func (n *Network) Answer(q fixture.Question, got netns.Answer) fixture.Answer {
	return fixture.Answer{Name: got.Backend, Source: n.source(q, got.Client.Addr())}
}

func timedOut(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// source tells whose address somebody saw.
func (n *Network) source(q fixture.Question, seen netip.Addr) fixture.Source {
	switch {
	case q.Source.IsValid() && seen == q.Source.Addr(), q.From != "node" && seen == fixture.MustAddress(service.FamilyOf(seen), q.From):
		return fixture.AsClient
	case n.atNode[seen]:
		return fixture.AsNode
	default:
		return fixture.AsOther
	}
}
