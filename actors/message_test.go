package actors

import "testing"

// A Service that goes and comes back between two turns is one message, and what
// happened to its slices meanwhile was posted to nobody: they have to be read.
func TestAServiceThatWasGoneBetweenTwoTurnsIsReadAnew(t *testing.T) {
	gone, back := SpecChanged{}, SpecChanged{Spec: spec()}
	tests := []struct {
		name     string
		messages []Message
		stale    bool
	}{
		{"changed", []Message{back, back}, false},
		{"gone", []Message{back, gone}, false},
		{"gone and back", []Message{gone, back}, true},
		{"gone, back and changed", []Message{gone, back, back}, true},
		{"gone, back and gone", []Message{gone, back, gone}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			message := test.messages[0]
			for _, newer := range test.messages[1:] {
				message = merge(message, newer)
			}
			m := live(slice("s", "10.0.0.1"))
			turn(m)
			m.Step(message)
			if m.Stale() != test.stale {
				t.Errorf("stale: %v, want %v", m.Stale(), test.stale)
			}
		})
	}
}
