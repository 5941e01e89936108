package sim

// shrink gives a shorter list of events that still fails, by leaving out ever
// smaller runs of them (delta debugging). It asks fails at most tries times.
func shrink(events []event, fails func([]event) bool, tries int) []event {
	for size := (len(events) + 1) / 2; size > 0; {
		shorter := false
		for from := 0; from < len(events); {
			if tries == 0 {
				return events
			}
			tries--
			to := min(from+size, len(events))
			rest := append(append([]event{}, events[:from]...), events[to:]...)
			if fails(rest) {
				events, shorter = rest, true
			} else {
				from = to
			}
		}
		if !shorter || size > len(events) {
			size /= 2
		}
	}
	return events
}
