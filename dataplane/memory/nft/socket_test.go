package nft

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
)

func TestSocketsHavePortsOfTheirOwn(t *testing.T) {
	k := NewKernel()
	a, _ := k.Open()
	b, _ := k.Open()
	if a.Port() == 0 || a.Port() == b.Port() {
		t.Errorf("ports %d and %d", a.Port(), b.Port())
	}
}

func TestClosedSocket(t *testing.T) {
	s, _ := NewKernel().Open()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var notTaken *wire.NotTakenError
	if _, err := s.Commit(transaction(unix.NFPROTO_IPV4, addTable())); !errors.As(err, &notTaken) {
		t.Errorf("a closed socket takes a transaction: %v", err)
	}
	if err := s.Ask(t.Context(), unix.NFT_MSG_GETTABLE, unix.NFPROTO_IPV4, true, nil, func(wire.Message) {}); err == nil {
		t.Error("a closed socket answers")
	}
}

func TestTooLargeATransactionIsNotTaken(t *testing.T) {
	s, _ := NewKernel().Open()
	tx := transaction(unix.NFPROTO_IPV4, addTable())
	tx.Add(func(b []byte) []byte { return append(b, make([]byte, s.Room())...) })
	if _, err := s.Commit(tx); !errors.Is(err, unix.EMSGSIZE) {
		t.Errorf("got %v, want EMSGSIZE", err)
	}
}

// TestAnswersEndWithTheContext: nothing is handed on once time is up.
func TestAnswersEndWithTheContext(t *testing.T) {
	k := withRules(t, unix.NFPROTO_IPV4, hooked("filter", unix.NF_INET_PRE_ROUTING, 0), addChain("a"), addChain("b"))
	s, _ := k.Open()
	ctx, cancel := context.WithCancel(t.Context())
	heard := 0
	err := s.Ask(ctx, unix.NFT_MSG_GETCHAIN, unix.NFPROTO_IPV4, true, nil, func(m wire.Message) {
		heard++
		if m.Port != s.Port() {
			t.Errorf("an answer to port %d", m.Port)
		}
		cancel()
	})
	if err != nil || heard != 1 {
		t.Errorf("%d chains were heard of, error %v; want one", heard, err)
	}
}

// TestFamiliesAreApart: one name in two families is two tables.
func TestFamiliesAreApart(t *testing.T) {
	k := NewKernel()
	must(t, k, unix.NFPROTO_IPV4, addTable(), addChain("four"))
	must(t, k, unix.NFPROTO_IPV6, addTable(), addChain("six"))
	if got := k.commit(transaction(unix.NFPROTO_IPV4, addRule("six"))); len(got) != 1 || got[0].Errno != unix.ENOENT {
		t.Errorf("a chain of the other family: %v, want ENOENT", got)
	}
	must(t, k, unix.NFPROTO_IPV6, inTable(unix.NFT_MSG_DELTABLE, 0))
	must(t, k, unix.NFPROTO_IPV4, addRule("four"))
}
