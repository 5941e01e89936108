package play

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// Segments of a connection that have lost their way: the endpoint of a session
// sends some that no window has room for. The client must not see them: it would
// not know who sends them, and reset.
var _ = define("stray", verb{usage: "stray s1 b p1 (endpoint b of session s1 sends segments outside of the window, and p1 resets nothing)", kernel: true, parse: parseStray})

// strayRest is how long a reset may take.
const strayRest = 200 * time.Millisecond

func parseStray(words []string) (statement, error) {
	if len(words) != 3 {
		return nil, errors.New("want the name of a session, its endpoint and its client")
	}
	return settled(func(ctx context.Context, s *Stage, w *network.World) error {
		all, err := kept[sessions](s, words[0])
		if err != nil {
			return err
		}
		before, err := w.Resets(words[2])
		if err != nil {
			return err
		}
		for i, family := range s.families {
			from, err := fixture.Address(family, words[1])
			if err != nil {
				return err
			}
			if err := w.Stray(netip.AddrPortFrom(from, fixture.EndpointPort), all[i].Answer().Client); err != nil {
				return err
			}
		}
		if err := sleep(ctx, strayRest); err != nil {
			return err
		}
		after, err := w.Resets(words[2])
		if err == nil && after != before {
			err = fmt.Errorf("%s has sent %d resets, want none", words[2], after-before)
		}
		return err
	}), nil
}
