package reference

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// Unsure is the reason why the reference does not say how a question ends.
type Unsure struct{ reason string }

func (u Unsure) Error() string { return "not laid down: " + u.reason }

func unsuref(format string, args ...any) error { return Unsure{fmt.Sprintf(format, args...)} }

// Wanted is how a question has to end.
type Wanted struct {
	Fate fixture.Fate
	// Sources has those who answer, each with whom it takes for the client; "" if
	// that is not laid down.
	Sources map[string]fixture.Source
	// Sticky is set if one client sees only one of them.
	Sticky bool
}

// Names gives those who answer, sorted.
func (w Wanted) Names() []string { return slices.Sorted(maps.Keys(w.Sources)) }

// Source is whom all of them take for the client, "" if they differ.
func (w Wanted) Source() fixture.Source {
	var common fixture.Source
	for i, name := range w.Names() {
		if source := w.Sources[name]; i == 0 {
			common = source
		} else if source != common {
			return ""
		}
	}
	return common
}

// String writes it as a scenario does.
func (w Wanted) String() string {
	switch w.Fate {
	case fixture.Refused:
		return "refused"
	case fixture.Silent:
		return "silence"
	}
	text := strings.Join(w.Names(), " ")
	if source := w.Source(); source != "" {
		text += " as " + string(source)
	}
	return text
}
