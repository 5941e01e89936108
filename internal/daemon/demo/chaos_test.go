package demo

import (
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

func TestChaosStrikesOnceAndOnlyItsVictim(t *testing.T) {
	c := newChaos()
	if got := c.next(echo); got != behave {
		t.Errorf("unarmed: %v", got)
	}
	c.arm(echo, panics)
	if got := c.next(service.Key{Namespace: "demo", Name: "dns"}); got != behave {
		t.Errorf("somebody else: %v", got)
	}
	if got := c.next(echo); got != panics {
		t.Errorf("the victim: %v", got)
	}
	if got := c.next(echo); got != behave {
		t.Errorf("the victim again: %v", got)
	}
}

func TestChaosPanics(t *testing.T) {
	c := newChaos()
	c.arm(echo, panics)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	c.intercept(t.Context(), echo, nil)
}

func TestChaosHangsUntilItsEnd(t *testing.T) {
	c := newChaos()
	c.arm(echo, hangs)
	returned := make(chan struct{})
	go func() {
		c.intercept(t.Context(), echo, nil)
		close(returned)
	}()
	select {
	case <-returned:
		t.Error("did not hang")
	case <-time.After(20 * time.Millisecond):
	}
	c.end()
	<-returned
}
