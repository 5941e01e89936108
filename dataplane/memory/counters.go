package memory

// Counters is the work that a kernel was asked to do since it was made.
type Counters struct {
	// Restores, Saves and Hooks count commands that ran, whatever came of them.
	Restores, Saves, Hooks int
	// Bytes and Lines count what Restores were given: Lines without comments,
	// blank lines and what follows a refusal.
	Bytes, Lines int
	// Refused counts commands that ended with a refusal.
	Refused int
}

// Counters gives a copy of the counters.
func (k *Kernel) Counters() Counters {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.counters
}
