package relay

import "sync"

// Places are those of the open listeners of relays that serve the same host. The zero value has
// none. Any goroutine may use it.
//
// A datagram whose source is one of them was invented: this process sends from there to clients
// alone. Answered, it would come back as the next question.
type Places struct{ listeners sync.Map }

func (p *Places) add(l *Listener)    { p.listeners.Store(l.place, l) }
func (p *Places) remove(l *Listener) { p.listeners.CompareAndDelete(l.place, l) }

func (p *Places) has(place Place) bool {
	_, has := p.listeners.Load(place)
	return has
}
