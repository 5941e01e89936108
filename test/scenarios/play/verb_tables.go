package play

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// Writes of mode nftables that the kernel refuses. The rules are lost meanwhile.
var _ = define("tables", verb{usage: "tables seized (another process owns the proxy's tables in nf_tables), then tables released", kernel: true, parse: parseTables})

// seizure is what keeps the tables.
type seizure struct{ io.Closer }

func parseTables(words []string) (statement, error) {
	switch strings.Join(words, " ") {
	case "seized":
		return settled(func(ctx context.Context, s *Stage, w *network.World) error {
			owner, err := w.Seize(ctx)
			if err != nil {
				return err
			}
			keep(s, "", &seizure{owner})
			s.atEnd(func() error { return release(s) })
			return nil
		}), nil
	case "released":
		return act(func(_ context.Context, s *Stage) error { return release(s) }), nil
	default:
		return nil, errors.New("want seized or released")
	}
}

// release lets go of the tables, once.
func release(s *Stage) error {
	held, err := kept[*seizure](s, "")
	if err != nil || held.Closer == nil {
		return err
	}
	owner := held.Closer
	held.Closer = nil
	return owner.Close()
}
