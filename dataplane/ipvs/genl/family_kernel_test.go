package genl

import (
	"errors"
	"strings"
	"testing"
)

// TestFamilyThatIsMissing asks for a family that no kernel has, as IPVS is asked
// for, and then for one that every kernel has.
func TestFamilyThatIsMissing(t *testing.T) {
	s, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.lookUp("NO-SUCH-FAMILY"); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "ip_vs") {
		t.Errorf("got %v", err)
	}
	const controller = 0x10
	if got, err := s.lookUp("nlctrl"); err != nil || got != controller {
		t.Errorf("the controller is %#x, %v", got, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.lookUp("nlctrl"); err == nil || errors.Is(err, ErrUnavailable) {
		t.Errorf("on a closed socket: %v", err)
	}
}
