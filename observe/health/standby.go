package health

import "time"

// Standby tells of a process that waits for another one, which serves the node, to
// end. It owes nothing to the kernel meanwhile: a restart would help nobody, so /livez
// answers 200, and balancers have nothing to look for, so /healthz answers 503.
type Standby struct {
	// For is who is waited for, in words; empty when nobody is.
	For string
	// Since is when the waiting began; or when it ended, zero if there was none.
	Since time.Time
}

// owed gives the time from which on something is owed that has been pending since a
// moment: what was pending during the wait is owed from its end on.
func (s *Standby) owed(since time.Time) time.Time {
	switch {
	case s.For != "":
		return time.Time{}
	case since.IsZero():
		return since
	default:
		return later(since, s.Since)
	}
}

func (s *Standby) findings() []Finding {
	if s.For == "" {
		return nil
	}
	return []Finding{{Kind: Waiting, Since: s.Since, Unhealthy: true,
		Problem: "another proxy serves this node; this one is ready and waits for its end: " + oneLine(s.For)}}
}
