package aggregator

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// aheadModel is a model that can read ahead.
type aheadModel struct {
	*model
	// lasts is how long reading ahead takes; calls has what was called, in order.
	lasts time.Duration
	mu    sync.Mutex
	calls []string
}

func (m *aheadModel) note(call string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, call)
}

func (m *aheadModel) called() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.calls)
}

func (m *aheadModel) ReadAhead(context.Context) {
	m.note("ahead")
	time.Sleep(m.lasts)
	m.note("ahead ended")
}

func (m *aheadModel) Read(ctx context.Context) ([]dataplane.Object, error) {
	m.note("read")
	return m.model.Read(ctx)
}

func TestTheKernelIsReadWhileTheGateIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &aheadModel{model: &model{}, lasts: time.Minute}
		mayWrite := make(chan struct{})
		h := openWriter(t, m.model, m, Config{MayWrite: mayWrite})
		synctest.Wait()
		is(t, "calls while another process owns the rules", m.called(), []string(nil))

		close(mayWrite)
		synctest.Wait()
		is(t, "calls before the keys are known", m.called(), []string{"ahead"})

		h.submit("a", 1, 1, "1")
		h.Prime([]service.Key{{Namespace: "ns", Name: "a"}})
		synctest.Wait()
		is(t, "calls while reading ahead", m.called(), []string{"ahead"})
		is(t, "verdicts while reading ahead", h.verdictsFor("a"), []string(nil))

		time.Sleep(2 * time.Minute)
		is(t, "calls at the start", m.called()[:3], []string{"ahead", "ahead ended", "read"})
		is(t, "verdicts", h.verdictsFor("a"), []string{"applied 1.1"})
		time.Sleep(time.Hour)
		for _, later := range m.called()[3:] {
			is(t, "later call", later, "read")
		}
	})
}

func TestAnOpenGateIsNotReadAheadOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &aheadModel{model: &model{}}
		mayWrite := make(chan struct{})
		h := openWriter(t, m.model, m, Config{MayWrite: mayWrite})
		h.Prime(nil)
		synctest.Wait()
		close(mayWrite)
		synctest.Wait()
		is(t, "calls", m.called(), []string{"read"})
	})
}
