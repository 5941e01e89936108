package sim

import (
	"fmt"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/memory"
)

// besides are the numbers of refused Services beside which everything else has to go on.
var besides = []int{1, 3, 100}

// The Services of these stories: those that are well, those that the kernel has served
// before it refuses them, and those that it refuses from the beginning.
const (
	wellServices  = 12
	firstTurned   = 20
	firstRefused  = 40
	turnedMax     = 10
	firstTrouble  = 1
	storyShape    = 0x5a00
	restartsAfter = 2
)

// seedFor gives a seed whose settings have a kind of blame, and no small inputs.
func seedFor(t *testing.T, blame memory.Blame) uint64 {
	t.Helper()
	for seed := uint64(1); seed < 1000; seed++ {
		if s := settingsOf(seed); s.blame == blame && s.writer.Stages.Chains == 0 {
			return seed
		}
	}
	t.Fatalf("no seed has blame %d", blame)
	return 0
}

// refusedStory lets refused Services come beside others, and the process restart.
func refusedStory(refused int) (events []event) {
	add := func(do verb, n, m int) {
		events = append(events, event{do, n, m, storyShape + uint64(n)})
	}
	add(setNode, 0, 0)
	turned := min(refused, turnedMax)
	for n := range firstTurned + turned {
		if n < wellServices || n >= firstTurned {
			add(setService, n, 0)
			add(setSlice, n, 0)
			add(setSlice, n, 1)
		}
	}
	add(quiet, 0, 0)
	trouble := firstTrouble
	for i := range refused {
		n := firstRefused + i
		if i < turned {
			n = firstTurned + i
		} else {
			add(setSlice, n, 0)
		}
		add(poisonService, n, trouble)
		trouble++
	}
	add(quiet, 0, 0)
	for i := range restartsAfter {
		add(restart, 0, 0)
		add(setSlice, 2+i, 1) // a neighbour changes while the first audit runs
		add(quiet, 0, 0)
	}
	add(failTool, 0, 2)
	add(restart, 0, 0)
	add(quiet, 0, 0)
	add(cure, 0, 0)
	add(quiet, 0, 0)
	return events
}

// One refused Service or three, with and without a word of the tool on which they
// are: nobody who was served is served worse after a restart, and the changes of
// neighbours land. The guard objects otherwise.
func TestNobodyLosesAnythingBesideRefusedServices(t *testing.T) {
	blames := map[string]memory.Blame{
		"the line": memory.BlameLine, "the COMMIT": memory.BlameCommit, "nobody": memory.BlameNobody,
	}
	for name, blame := range blames {
		for _, refused := range besides[:2] { // a hundred take minutes; the other kinds of receipts have them
			t.Run(fmt.Sprintf("refused=%d/blamed=%s", refused, name), func(t *testing.T) {
				t.Parallel()
				if _, err := run(t, scenario{seedFor(t, blame), refusedStory(refused)}, nil); err != nil {
					t.Error(short(err))
				}
			})
		}
	}
}

// short leaves the beginning of an error that tells of very many things.
func short(err error) string {
	const most = 3000
	text := err.Error()
	if len(text) > most {
		return text[:most] + " …"
	}
	return text
}
